"""One page that says what was released, how private it is, what it cost and what an attacker achieved."""
