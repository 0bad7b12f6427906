"""The product: files, tables, time and people around the library. The library imports nothing from here."""
