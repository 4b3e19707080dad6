"""Five words that stand for everything two machines must agree on when one joins: a person compares them.

Short, plain words of everyday things, of which no two begin with the same four letters or differ in one letter alone:
they are read out over a phone. No I/O.
"""

import hashlib

# One byte is one word, so there are 256; their order never changes, for both sides must show the same.
_LIST = """
acorn actor album alley amber anchor ankle apple arch arrow atlas attic autumn bacon badge bagel baker bamboo banjo
barn basil basket beach beard beaver berry bicycle blanket bottle boulder brick bridge bronze broom bucket buffalo
bulb butter cabin cactus camel candle canoe canyon captain carpet carrot castle cheese cherry chimney circus clock
coffee copper coral cotton cousin crayon cricket crown curtain daisy dancer desert diamond dinner doctor dolphin
donkey dragon drawer eagle earth echo elbow engine falcon farmer feather fence fiddle finger flag flute forest
fossil freezer frog funnel galaxy garden garlic gate giraffe glacier glove goose grape guitar hammer harbor harvest
hedge helmet hockey honey horizon hotel iceberg igloo insect island ivory jacket jaguar jelly jewel jigsaw jungle
kayak kennel kettle kitchen kite knight koala ladder lake lantern laundry lemon leopard letter library lion lobster
magnet mango maple marble market meadow melon mirror mitten motor museum mustard napkin needle noodle north novel
ocean octopus olive onion opera orange orchard otter oxygen oyster paddle palace panda paper peanut pebble pelican
pencil pepper piano picnic pigeon pillow pilot pirate planet plum pocket pond pretzel pumpkin purple puzzle pyramid
queen quilt rabbit radio rain raven recipe ribbon river robin rubber sailor salad salmon sandal saturn scarf school
shadow shelf silver skate snail soap spider spoon stable storm sugar sunset swan teapot temple tennis thunder ticket
tiger timber toast tomato tractor trumpet tulip turtle uncle unicorn vanilla velvet violin volcano vulture waffle
wagon walnut walrus water whale wheat whistle window winter wizard wolf wool yellow yogurt zebra zipper
"""
WORDS = tuple(_LIST.split())
# Forty bits. Nobody can look for keys with the same words (`knock` says why), so a false one shows them by chance: one
# in 10^12.
COUNT = 5
_DOMAIN = b"bascule-mesh-words-1\0"


def words_of(*parts: bytes) -> str:
    """`parts` in one order on both sides; each is hashed with its length, so that none can run into the next."""
    digest = hashlib.sha256(_DOMAIN)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return " ".join(WORDS[byte] for byte in digest.digest()[:COUNT])
