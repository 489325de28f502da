"""What changed of late, read without any snapshot: from change times, from what installers leave, and from logs.

It is for those who have the tool since a minute ago, and the damage since an hour.
"""
