"""What a run does, step by step; ``torchmemlint.run`` puts the steps together."""
