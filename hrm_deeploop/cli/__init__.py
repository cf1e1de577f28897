"""The command line: compose a configuration, make a dataclass, call the library once."""
