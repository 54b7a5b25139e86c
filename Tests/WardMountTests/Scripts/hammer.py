"""Opens files again and again, also after errors, until standard input ends; prints the number of opens.

hammer.py DIRECTORY COUNT: the files are DIRECTORY/0 … COUNT - 1.
"""
import os
import select
import sys

directory, count = sys.argv[1], int(sys.argv[2])
opens = refused = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for number in range(count):
        try:
            os.close(os.open("%s/%d" % (directory, number), os.O_RDONLY))
        except PermissionError:
            refused += 1
        opens += 1
print(opens, refused)
