"""The half that touches the world. No judgement lives here: what a reading means is decided in `workflows`."""
