"""StreamHouse's own SQL statements as text: lexer, parser, options, definitions. No I/O."""
