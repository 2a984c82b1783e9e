"""Assembly: puts a broker's parts together, family by family; the only folder of the broker that knows all others.

    base                what every family is made from: settings, disk, store, clock
    tables, reads,      the parts of each family, made, loaded and closed
    cluster, due, pops
    parts               these families in the order in which they need each other
    messages, pops      the two paths of messages: sends and pulls, POP
    cold_tier, helpers, the families that reach other processes
    state, local_store
    recurring, health   what runs beside requests
    processors          every family of requests, behind one dispatcher

`hot_process.py` starts and stops them in the order in which no acknowledged message is lost.
"""
