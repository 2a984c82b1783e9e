"""The write side: rows of a DataFrame become messages, through the brokers."""
