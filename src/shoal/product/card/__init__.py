"""What a release is, in figures: the card, and the words, tables and pages made from it."""
