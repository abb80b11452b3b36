"""Contracts of the handlers, as data: read, checked, written out as C++, Python and a page."""
