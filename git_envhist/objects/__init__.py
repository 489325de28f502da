"""Encode, store and read git objects, and the packs that captures write.

Packs of ours have a `.keep` file with a mark, so that git leaves them alone. `reader` finds an object in our packs,
in other packs or by asking git. Ids are checked where the caller asks for it.
"""
