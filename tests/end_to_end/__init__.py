"""The programs in real repositories, judged from outside."""
