"""What a privacy officer asks: could somebody find a household in this, and what do today's rules give?"""
