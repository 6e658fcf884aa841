"""`c5c3-orders doctor`: a line per thing that has to hold, with the remedy where it does not. No check writes."""
