"""State: what a broker is besides its messages, saved beside the ledger so that the bucket alone brings it back."""
