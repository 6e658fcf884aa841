"""The half that decides: models, names, what children should be, what a reading means, in which order steps run."""
