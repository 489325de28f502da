"""The way through the house that a restore takes: plan, guard, save, carry out, record.

Wiring, as `capturing` is: it joins the rooms `capture`, `store`, `history` and `restore`.
"""
