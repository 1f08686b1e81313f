"""Makes a PNG smaller: a picture of few colours becomes one with a palette. Arguments: from, to.

Chromium writes 8 bits of red, green, blue (and alpha) a pixel, not interlaced; nothing else is read.
"""

import struct
import sys
import zlib
from collections import Counter


def chunks(png):
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def unfilter(data, width, height, step):
    rows, before = [], bytes(width * step)
    for y in range(height):
        kind, line = data[y * (width * step + 1)], bytearray(data[y * (width * step + 1) + 1 :][: width * step])
        for x in range(len(line)):
            left = line[x - step] if x >= step else 0
            corner = before[x - step] if x >= step else 0
            up = before[x]
            nearest = min((abs(up - corner), 0, left), (abs(left - corner), 1, up),
                          (abs(left + up - 2 * corner), 2, corner))[2]
            line[x] = (line[x] + [0, left, up, (left + up) // 2, nearest][kind]) & 255
        rows.append(bytes(line))
        before = line
    return rows


def main(source, target):
    png = open(source, "rb").read()
    parts = list(chunks(png))
    width, height, depth, colour, *_, interlaced = struct.unpack(">IIBBBBB", parts[0][1])
    assert depth == 8 and colour in (2, 6) and not interlaced, "not a picture of Chromium's"
    step = 3 if colour == 2 else 4
    data = zlib.decompress(b"".join(body for kind, body in parts if kind == b"IDAT"))
    rows = unfilter(data, width, height, step)
    pixels = [[row[x : x + 3] for x in range(0, len(row), step)] for row in rows]
    counts = Counter(pixel for row in pixels for pixel in row)
    palette = [pixel for pixel, _ in counts.most_common(256)]
    nearest = {pixel: index for index, pixel in enumerate(palette)}
    for pixel in counts:
        if pixel not in nearest:
            far = lambda index: sum((a - b) ** 2 for a, b in zip(palette[index], pixel))
            nearest[pixel] = min(range(256), key=far)
    image = b"".join(b"\0" + bytes(nearest[pixel] for pixel in row) for row in pixels)
    with open(target, "wb") as out:
        out.write(png[:8])
        header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
        for kind, body in [(b"IHDR", header), (b"PLTE", b"".join(palette)),
                           (b"IDAT", zlib.compress(image, 9)), (b"IEND", b"")]:
            out.write(struct.pack(">I", len(body)) + kind + body)
            out.write(struct.pack(">I", zlib.crc32(kind + body)))


main(*sys.argv[1:])
