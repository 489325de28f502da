"""Encode, store and read git objects, and the packs that captures write.

`pack_writer` writes a pack with its index into a staging directory, verified and synced. Our packs have a `.keep`
file with a mark, so that git leaves them alone (`own_packs`). `reader` reads an object from our packs, otherwise
through git; each of its readers states what it verifies: the id, the checksum of the packed entry, or deflate's
checksum.
"""
