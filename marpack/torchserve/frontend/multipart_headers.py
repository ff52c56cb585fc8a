"""Headers of multipart bodies and their sections, and the charsets that Java knows (contract §4)."""

import re
from functools import cache

from msgspec import Struct

from marpack.torchserve.frontend.headers import BAD_ESCAPE, FormError, kept_name

# What stands before a number or a word in some names, and the numbers or words that all of these go with.
_FAMILIES = (
    (
        ("", "cp", "ibm", "ibm-"),
        """
        037 273 277 278 280 284 285 290 297 300 420 424 437 500 737 775 813 819 833 834 838 850 852 855 856 857
        858 860 861 862 863 864 865 866 868 869 870 871 874 875 912 913 914 915 916 918 920 921 922 923 930 932
        933 935 937 939 942 943 948 949 950 964 970 1006 1025 1026 1046 1047 1089 1097 1098 1112 1122 1123 1124
        1129 1140 1141 1142 1143 1144 1145 1146 1147 1148 1149 1166 1364 1381 1383 942c 943c 949c 33722 29626c
        """,
    ),
    (
        ("x-ibm",),
        """
        300 737 833 834 856 874 875 921 922 930 932 933 935 937 939 942 943 948 949 950 964 970 1006 1025 1046
        1097 1098 1112 1122 1123 1124 1129 1166 1364 1381 1383 942c 943c 949c 33722 29626c
        """,
    ),
    (("csibm",), "037 278 284 285 290 297 420 424 500 857 860 861 862 863 864 865 866 868 869 870 871"),
    (("ccsid", "cp", "ibm"), "00858 01140 01141 01142 01143 01144 01145 01146 01147 01148 01149"),
    (("cp", "windows-"), "437 874 932 936 949 950 1250 1251 1252 1253 1254 1255 1256 1257 1258"),
    (("iso-8859-", "iso8859-", "iso8859_", "iso_8859-", "8859_"), "1 2 3 4 5 6 7 8 9 13 15"),
    (("iso-ir-",), "6 87 100 101 109 110 126 127 138 144 148 153 159 226"),
    (
        ("mac", "x-mac"),
        """
        arabic centraleurope croatian cyrillic dingbat greek hebrew iceland roman romania symbol thai turkish
        ukraine
        """,
    ),
    (("latin", "l", "csisolatin"), "1 2 3 4 5 9"),
    (("utf-", "utf_"), "16 32 16be 16le 32be 32le"),
    (
        ("", "x-"),
        """
        big5-hkscs-2001 euc-cn euc-jp euc-jp-linux euc-tw eucjp eucjp-open iscii91 iso-2022-cn-cns
        iso-2022-cn-gb iso-8859-11 jis0208 jisautodetect johab ms932_0213 pck sjis sjis_0213 utf-32be-bom
        utf-32le-bom windows-iso2022jp
        """,
    ),
)

_OTHERS = """
5601 646 ansi-1251 ansi_x3.4-1968 ansi_x3.4-1986 arabic ascii ascii7 asmo-708 big5 big5-hkscs big5-hkscs:unicode3.0
big5_hkscs big5_hkscs_2001 big5_solaris big5hk big5hk-2001 big5hkscs big5hkscs-2001 cesu-8 cesu8 cns11643 cp-ar cp-gr
cp-is cp367 cp50220 cp50221 cp5346 cp5347 cp5348 cp5349 cp5350 cp5353 cpeuccn cpibm284 cpibm285 cpibm297 cpibm37
cs-ebcdic-cp-ca cs-ebcdic-cp-nl cs-ebcdic-cp-us cs-ebcdic-cp-wt csascii csbig5 cscesu-8 cseuckr cseucpkdfmtjapanese
cshalfwidthkatakana csiso153gost1976874 csiso159jisx02121990 csiso2022cn csiso2022jp csiso2022jp2 csiso2022kr
csiso87jisx0208 csiso885915 csiso885916 csisolatin0 csisolatinarabic csisolatincyrillic csisolatingreek
csisolatinhebrew csjisencoding cskoi8r cspc850multilingual cspc862latinhebrew cspc8codepage437 cspcp852 cspcp855
csshiftjis cswindows31j cyrillic default ebcdic-cp-ar1 ebcdic-cp-ar2 ebcdic-cp-bh ebcdic-cp-ca ebcdic-cp-ch
ebcdic-cp-fr ebcdic-cp-gb ebcdic-cp-he ebcdic-cp-is ebcdic-cp-nl ebcdic-cp-roece ebcdic-cp-se ebcdic-cp-us
ebcdic-cp-wt ebcdic-cp-yu ebcdic-de-273+euro ebcdic-dk-277+euro ebcdic-es-284+euro ebcdic-fi-278+euro
ebcdic-fr-277+euro ebcdic-gb ebcdic-gb-285+euro ebcdic-international-500+euro ebcdic-it-280+euro ebcdic-jp-kana
ebcdic-no-277+euro ebcdic-s-871+euro ebcdic-se-278+euro ebcdic-sv ebcdic-us-037+euro ecma-114 ecma-118 elot_928 euc-kr
euc_cn euc_jp euc_jp_linux euc_jp_solaris euc_kr euc_tw euccn eucjis euckr euctw
extended_unix_code_packed_format_for_japanese gb18030 gb18030-2022 gb2312 gb2312-1980 gb2312-80 gbk greek greek8
hebrew ibm-1252 ibm-33722_vascii_vpua ibm-37 ibm-5050 ibm-euccn ibm-eucjp ibm-euckr ibm-euctw ibm-thai ibm1252 ibm367
ibmeuccn iscii iso-10646-ucs-2 iso-2022-cn iso-2022-jp iso-2022-jp-2 iso-2022-kr iso-8859-16 iso2022cn iso2022cn_cns
iso2022cn_gb iso2022jp iso2022jp2 iso2022kr iso646-us iso8859_11 iso8859_15_fdis iso8859_16 iso_646.irv:1983
iso_646.irv:1991 iso_8859-16 iso_8859-16:2001 iso_8859-1:1987 iso_8859-2:1987 iso_8859-3:1988 iso_8859-4:1988
iso_8859-5:1988 iso_8859-6:1987 iso_8859-7:1987 iso_8859-8:1988 iso_8859-9:1989 iso_8859_1 jis jis0201 jis0212
jis_c6226-1983 jis_encoding jis_x0201 jis_x0208-1983 jis_x0212-1990 koi8 koi8-r koi8-u koi8_r koi8_u ks_c_5601-1987
ksc5601 ksc5601-1987 ksc5601-1992 ksc5601_1987 ksc5601_1992 ksc_5601 l10 latin-9 latin0 latin10 ms-874 ms1361 ms50220
ms50221 ms874 ms932 ms932-0213 ms932:2004 ms936 ms949 ms950 ms950_hkscs ms950_hkscs_xp ms_936 ms_949 ms_kanji
pc-multilingual-850+euro shift-jis shift_jis shift_jis:2004 shift_jis_0213:2004 sjis-0213 sjis:2004 sjis_0213:2004
st_sev_358-88 sun_eu_greek tis-620 tis620 tis620.2533 unicode unicode-1-1-utf-8 unicodebig unicodebigunmarked
unicodelittle unicodelittleunmarked us us-ascii utf-8 utf16 utf32 utf8 utf_32be_bom utf_32le_bom windows-31j
windows-932-0213 windows-932:2004 windows949 x-big5-solaris x-ms950-hkscs x-ms950-hkscs-xp x-mswin-936 x-utf-16be
x-utf-16le x-utf-16le-bom x-utf-32be x-utf-32le x-windows-50220 x-windows-50221 x-windows-874 x-windows-949
x-windows-950 x0201 x0208 x0212
"""
MULTIPART = "multipart/form-data"
OCTETS = "application/octet-stream"
NOT_AN_INDEX = "ArrayIndexOutOfBoundsException"
_NO_SUCH_RANGE = "StringIndexOutOfBoundsException"

_EMPTY_PIECE = re.compile(r"[^;]*;\s* (?=;)")
_HEADER_NAME = re.compile(r"[^:\s]*")
_QUOTED_OR_SEMICOLON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|;', re.DOTALL)
_CHARSET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_-]*\Z")
_TO_BLANKS = str.maketrans({":": " ", ",": " ", "=": " ", ";": " ", "\t": " ", '"': None})
_CONTROLS = "".join(map(chr, range(33)))  # what Java trims off a text: controls and blanks


@cache
def charset_names() -> frozenset[str]:
    """Return every name."""
    families = (prefix + word for prefixes, words in _FAMILIES for prefix in prefixes for word in words.split())
    return frozenset((*families, *_OTHERS.split()))


class Delimiter(Struct, frozen=True):
    """What separates a form's sections, and in what their headers are written."""

    boundary: str
    charset: str


def delimiter_of(content_type: str) -> Delimiter | None:
    """Return what a form's content type says of its sections; None where it is no form's.

    Raises FormError for a form that the frontend refuses.
    """
    if not content_type.startswith(MULTIPART) or ";" not in content_type:
        return None
    if (empty := _EMPTY_PIECE.match(content_type)) is not None:
        where = f"begin {empty.end()}, end {empty.end() - 1}, length {len(content_type)}"
        raise FormError(where, kind=_NO_SUCH_RANGE)
    # Cut at its first two semicolons, whatever they stand in: the third piece holds all that follows.
    first, second = [*(piece.strip() for piece in content_type.split(";", 2)[1:]), ""][:2]
    for piece, other in ((first, second), (second, first)):
        if piece.lower().startswith("boundary"):
            return Delimiter(_boundary(piece), _form_charset(other))
    return None


def _boundary(piece: str) -> str:
    _, equals, boundary = piece.partition("=")
    if not equals:
        raise FormError("Needs a boundary value")
    if not boundary:
        raise FormError("String index out of range: 0", kind=_NO_SUCH_RANGE)
    if boundary == '"':  # without quotes it would have -1 letters
        raise FormError("begin 1, end 0, length 1", kind=_NO_SUCH_RANGE)
    return unquoted(boundary)


def _form_charset(piece: str) -> str:
    name, equals, charset = piece.partition("=")
    if not equals or not names_charset(name):
        return "utf-8"
    if not _is_charset(charset):
        raise FormError(charset, status=403, kind="UnsupportedCharsetException")
    return charset


def part_type(content_type: str) -> str:
    """Return the type that a file part with this Content-Type has: its last piece that names no charset."""
    types = [piece for piece in _pieces(content_type) if not names_charset(piece)]
    return types[-1] if types else OCTETS


def field_name(name: str) -> str:
    """Return a field's name after its way through a multipart body; raises FormError for one with nothing in it."""
    return kept_name(cleaned(name))


def split_header(line: str) -> list[str]:
    """Return a header's name and the pieces of its value."""
    text = line.strip(_CONTROLS)
    name = text[: _name_end(text)]
    return [name, *_pieces(text[len(name) :].partition(":")[2])]


def _name_end(text: str) -> int:
    found = _HEADER_NAME.match(text)
    return found.end() if found else 0


def _pieces(value: str) -> list[str]:
    """Return a value's pieces: between the semicolons outside quotes, or the commas where there is no semicolon."""
    text = value.strip(_CONTROLS)
    pieces = _between_semicolons(text) if ";" in text else _between_commas(text)
    return [piece.strip(_CONTROLS) for piece in pieces]


def _between_semicolons(text: str) -> list[str]:
    if '"' not in text:
        return text.split(";")
    cuts = [found.start() for found in _QUOTED_OR_SEMICOLON.finditer(text) if found[0] == ";"]
    return [text[start + 1 : end] for start, end in zip((-1, *cuts), (*cuts, len(text)), strict=True)]


def _between_commas(text: str) -> list[str]:
    # Java's split leaves empty pieces at the end out, but one of an empty text.
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def item(header: list[str], index: int) -> str:
    """Return a piece of a header; raises FormError where it has none there."""
    if index >= len(header):
        raise FormError(f"Index {index} out of bounds for length {len(header)}", kind=NOT_AN_INDEX)
    return header[index]


def names_charset(piece: str) -> bool:
    """Say whether a piece is taken for the parameter `charset`."""
    return piece.lower().startswith("charset")


def cleaned(text: str) -> str:
    """Return a parameter's name or value without quotes, and with blanks for what separates."""
    return text.translate(_TO_BLANKS).strip(_CONTROLS)


def unquoted(text: str) -> str:
    """Return a text without the quotes around it, if there are any."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def extended(value: str) -> str:
    """Return the value of a `filename*` as it stands; raises FormError where it cannot be decoded."""
    pieces = value.split("'", 2)
    if len(pieces) < 3:
        raise FormError(f"java.lang.{NOT_AN_INDEX}: Index 2 out of bounds for length {len(pieces)}")
    check_charset(pieces[0])
    bad = BAD_ESCAPE.search(pieces[2])
    if bad is not None:
        raise FormError(f"java.lang.IllegalArgumentException: {_why_no_escape(pieces[2], bad.start())}")
    return value


def _why_no_escape(text: str, at: int) -> str:
    byte = text[at + 1 : at + 3]
    if len(byte) < 2:
        return f"unterminated escape sequence at index {at} of: {text}"
    return f"invalid hex byte '{byte}' at index {at + 1} of '{text}'"


def check_charset(name: str) -> None:
    """Raise FormError for a charset that the server does not know."""
    if not _is_charset(name):
        raise FormError(f"java.nio.charset.UnsupportedCharsetException: {name}")


def _is_charset(name: str) -> bool:
    """Say whether the server knows a charset; raises FormError for what cannot be the name of any."""
    if not _CHARSET_NAME.match(name):
        raise FormError(name, status=403, kind="IllegalCharsetNameException")
    return name.lower() in charset_names()
