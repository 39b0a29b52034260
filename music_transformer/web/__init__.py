"""The local web page: drop a motif or play one, watch and hear it go on.

It needs the [web] extra, imported where it is used.
"""
