"""What torch.load(weights_only=True) accepts, as facts: held against torch's own list by a test."""

from collections.abc import Iterable, Iterator

from marpack.weights.pickle_stream import Global, Stream

_DENSE = "BFloat16 Bool Byte Char Double Float Half Int Long Short"
_STORAGES = f"{_DENSE} ComplexDouble ComplexFloat"
_SPARSE = "BFloat16 Byte Char Double Float Half Int Long Short"
_DTYPES = """
    bfloat16 bool complex32 complex64 complex128 float16 float32 float64
    float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu
    int1 int2 int3 int4 int5 int6 int7 int8 int16 int32 int64
    uint1 uint2 uint3 uint4 uint5 uint6 uint7 uint8 uint16 uint32 uint64
    bits8 bits16 bits1x8 bits2x4 bits4x2 qint8 qint32 quint8 quint2x4 quint4x2
    per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams
"""
_REBUILDERS = """
    device_tensor_from_cpu_tensor device_tensor_from_numpy meta_tensor_no_storage nested_tensor parameter
    parameter_with_state qtensor sparse_tensor tensor tensor_v2 tensor_v3 wrapper_subclass
"""
_OTHERS = """
    _codecs.encode builtins.bytearray builtins.complex builtins.set collections.Counter collections.OrderedDict
    torch.Size torch.Tensor torch.device torch._tensor._rebuild_from_type_v2 torch.nn.parameter.Parameter
    torch.serialization._get_layout torch.storage.TypedStorage torch.storage.UntypedStorage
    torch.QInt32Storage torch.QInt8Storage torch.QUInt2x4Storage torch.QUInt4x2Storage torch.QUInt8Storage
"""


def _spelt(pattern: str, words: str) -> Iterator[str]:
    return (pattern.format(word) for word in words.split())


# Dotted paths, as of torch 2.13; older releases from 2.6 on accept a part of them.
ALLOWED = frozenset(
    [
        *_spelt("{}", _OTHERS),
        *_spelt("torch.{}", _DTYPES),
        *_spelt("torch._utils._rebuild_{}", _REBUILDERS),
        *_spelt("torch.{}Storage", _STORAGES),
        *_spelt("torch.cuda.{}Storage", _STORAGES),
        *_spelt("torch.{}Tensor", _DENSE),
        *_spelt("torch.cuda.{}Tensor", _DENSE),
        *_spelt("torch.sparse.{}Tensor", _SPARSE),
        *_spelt("torch.cuda.sparse.{}Tensor", _SPARSE),
    ]
)
# Classes of plain values, and what rebuilds them: whatever their arguments, they run no code of a pickle's author.
_PLAIN = """
    builtins.bool builtins.bytes builtins.dict builtins.float builtins.frozenset builtins.int builtins.list
    builtins.object builtins.range builtins.slice builtins.tuple
    collections.defaultdict collections.deque copyreg._reconstructor
    datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone
    decimal.Decimal fractions.Fraction uuid.UUID uuid.SafeUUID
    joblib.numpy_pickle.NumpyArrayWrapper numpy.dtype numpy.ndarray
"""
_NUMPY = """
    numpy.{0}.multiarray._reconstruct numpy.{0}.multiarray.scalar numpy.{0}.numeric._frombuffer
"""
INERT = ALLOWED | frozenset([*_spelt("{}", _PLAIN), *_NUMPY.format("core").split(), *_NUMPY.format("_core").split()])
# What only TorchScript's own reader, which is C++ and calls no Python, finds under these names.
_SCRIPT_MODULES = ("__torch__", "torch.jit._pickle")
# The opcodes that torch's restricted unpickler knows; protocol 2 as torch.save writes it needs no others.
OPCODES = frozenset(b"cR\x81bae(su\x80t\x85\x86\x87N\x89\x88)]}\x8fJKMGXUQhjqr\x8a.")


def disallowed(imports: Iterable[Global], *, script: bool = False) -> tuple[Global, ...]:
    """Return the imports that torch.load(weights_only=True) refuses.

    `script` says that the pickle belongs to a TorchScript file, whose reader knows classes of its own.
    """
    return tuple(item for item in imports if item.path not in ALLOWED and not (script and _is_script(item.module)))


def loads_weights_only(stream: Stream) -> bool:
    """Tell whether torch.load(weights_only=True) would read the whole pickle without a complaint."""
    plain = stream.codes <= OPCODES and not stream.computed and not stream.indirect
    return plain and stream.problem is None and not disallowed(stream.imports)


def _is_script(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _SCRIPT_MODULES)
