"""What a privacy officer asks: could somebody find a household in this?"""
