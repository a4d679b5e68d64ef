"""Facts about records: one door, one module or room per engine, named SQL statements between them."""
