"""Messages: commands that send, show and trace messages."""
