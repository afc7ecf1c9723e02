"""A picture that somebody sent -> one that a model takes: small enough, upright, and without what
cameras write into it (place, time, owner). Sync, and slow: for a thread.

Every picture is encoded anew, also one that would fit: so nothing but its pixels leaves here.
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from PIL import Image, WebPImagePlugin

from core.results import MAX_IMAGE

LONGEST: Final = 1_568  # pixels of an edge; what is larger, the service makes smaller itself
# Decoded at once: 160 MB. A file of a few kilobytes may unfold to a hundred times of that.
MOST_PIXELS: Final = 40_000_000
FORMATS: Final = ("JPEG", "PNG", "GIF", "WEBP", "BMP")
QUALITIES: Final = (90, 75, 50)

# Loaded by name, or Pillow would load all that it has, to look for this one.
assert WebPImagePlugin.SUPPORTED
# What is checked below is the size that is really decoded: of a JPEG that may be an eighth.
Image.MAX_IMAGE_PIXELS = None


_ORIENTATION: Final = 0x0112  # in EXIF: how the camera was held
_TURNED: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class NoPicture(Exception):
    """Its text says why, in plain words."""


def fitted(data: bytes) -> bytes:
    """JPEG or PNG; of a picture that moves the first frame.

    :raises NoPicture: it cannot be read, or is too large
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            return _encoded(_small(image), lossy=image.format in ("JPEG", "MPO"))
    except NoPicture:
        raise
    except MemoryError:
        raise NoPicture("it has too many pixels") from None
    except Exception as error:
        # Of a broken file any may come out of a decoder.
        raise NoPicture("it cannot be read as a picture") from error


def _small(image: Image.Image) -> Image.Image:
    if image.format in ("JPEG", "MPO"):
        # The decoder itself then leaves out most of the pixels.
        image.draft("RGB", (LONGEST, LONGEST))
    if image.width * image.height > MOST_PIXELS:
        raise NoPicture(f"it has more than {MOST_PIXELS // 1_000_000} million pixels")
    if image.mode.startswith("I;16"):
        # As it stands it would turn out white.
        small: Image.Image = image.convert("I").point(lambda value: value / 256).convert("L")
    else:
        mode = "RGBA" if _may_be_clear(image) else "RGB"
        small = image if image.mode == mode else image.convert(mode)
    small.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    turned = _TURNED.get(image.getexif().get(_ORIENTATION, 1))
    return small if turned is None else small.transpose(turned)


def _may_be_clear(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info


def _encoded(image: Image.Image, *, lossy: bool) -> bytes:
    # A copy of the pixels alone: what stood beside them would be written, too.
    bare = Image.frombytes(image.mode, image.size, image.tobytes())
    if not lossy:
        # Letters and lines, as screenshots have them.
        png = _saved(bare, "PNG", compress_level=6)
        if len(png) <= MAX_IMAGE:
            return png
    if bare.mode == "RGBA":
        white = Image.new("RGBA", bare.size, "white")
        bare = Image.alpha_composite(white, bare)
    bare = bare.convert("RGB")
    for quality in QUALITIES:
        jpeg = _saved(bare, "JPEG", quality=quality)
        if len(jpeg) <= MAX_IMAGE:
            return jpeg
    raise NoPicture("it is too large")


def _saved(image: Image.Image, form: str, **options: int) -> bytes:
    into = BytesIO()
    image.save(into, form, **options)
    return into.getvalue()
