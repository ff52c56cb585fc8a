"""The names, in lower case, under which the server's Java (17) knows its charsets."""

from functools import cache

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


@cache
def charset_names() -> frozenset[str]:
    """Return every name."""
    families = (prefix + word for prefixes, words in _FAMILIES for prefix in prefixes for word in words.split())
    return frozenset((*families, *_OTHERS.split()))
