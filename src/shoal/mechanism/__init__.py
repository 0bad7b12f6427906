"""What can be released: mechanisms, codebooks, their certificates and files."""
