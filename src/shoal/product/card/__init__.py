"""A release in figures: the card, and the words, tables and pages made from it."""
