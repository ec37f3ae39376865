"""The checkout is the attacker: names, links, configuration, contents. Each test builds its own small folder."""
