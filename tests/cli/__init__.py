"""The people's command line: what it says of what it is given, and of a whole real stack in trouble."""
