"""ML-KEM-768 (FIPS 203) in plain Python: for reading a few capsules, not for speed, and not in constant time."""

import hashlib

N, Q, K = 256, 3329, 3
#: η1 and η2 are 2 in this parameter set; du and dv are the bits of a ciphertext's coefficients.
ETA, DU, DV = 2, 10, 4
PUBLIC_KEY_BYTES, CIPHERTEXT_BYTES = 1184, 1088

_ZETAS = [pow(17, int(f"{index:07b}"[::-1], 2), Q) for index in range(128)]


def _prf(seed, counter):
    return hashlib.shake_256(seed + bytes([counter])).digest(64 * ETA)


def _g(data):
    digest = hashlib.sha3_512(data).digest()
    return digest[:32], digest[32:]


def _bits(data, width):
    """The integers of `width` bits in bytes, lowest bit first (ByteDecode, algorithm 6)."""
    number = int.from_bytes(data, "little")
    return [number >> width * index & (1 << width) - 1 for index in range(8 * len(data) // width)]


def _bytes(values, width):
    number = sum(value << width * index for index, value in enumerate(values))
    return number.to_bytes(len(values) * width // 8, "little")


def _sample(seed, row, column):
    """A polynomial of the matrix, in NTT form (SampleNTT, algorithm 7)."""
    stream = hashlib.shake_128(seed + bytes([row, column])).digest(3 * 1024)
    values = []
    for at in range(0, len(stream), 3):
        first = stream[at] | (stream[at + 1] & 15) << 8
        second = stream[at + 1] >> 4 | stream[at + 2] << 4
        values += [value for value in (first, second) if value < Q]
        if len(values) >= N:
            return values[:N]
    raise AssertionError("a thousand samples are too few")


def _noise(data):
    """Algorithm 8, SamplePolyCBD."""
    bits = _bits(data, 1)
    return [(sum(bits[4 * i:4 * i + 2]) - sum(bits[4 * i + 2:4 * i + 4])) % Q for i in range(N)]


def _ntt(values):
    values, index, length = list(values), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            zeta, index = _ZETAS[index], index + 1
            for j in range(start, start + length):
                t = zeta * values[j + length] % Q
                values[j + length], values[j] = (values[j] - t) % Q, (values[j] + t) % Q
        length //= 2
    return values


def _inverse_ntt(values):
    values, index, length = list(values), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            zeta, index = _ZETAS[index], index - 1
            for j in range(start, start + length):
                t = values[j]
                values[j] = (t + values[j + length]) % Q
                values[j + length] = zeta * (values[j + length] - t) % Q
        length *= 2
    return [value * 3303 % Q for value in values]


def _multiply(a, b):
    """Algorithm 11, MultiplyNTTs."""
    result = []
    for i in range(128):
        gamma = pow(17, 2 * int(f"{i:07b}"[::-1], 2) + 1, Q)
        a0, a1, b0, b1 = a[2 * i], a[2 * i + 1], b[2 * i], b[2 * i + 1]
        result += [(a0 * b0 + a1 * b1 * gamma) % Q, (a0 * b1 + a1 * b0) % Q]
    return result


def _add(a, b):
    return [(x + y) % Q for x, y in zip(a, b)]


def _dot(left, right):
    total = [0] * N
    for a, b in zip(left, right):
        total = _add(total, _multiply(a, b))
    return total


def _compress(values, width):
    return [((value << width) + Q // 2) // Q % (1 << width) for value in values]


def _decompress(values, width):
    return [(value * Q + (1 << width - 1)) >> width for value in values]


def _polynomials(data, width):
    size = 32 * width
    return [_bits(data[at:at + size], width) for at in range(0, len(data), size)]


def _keys(seed):
    """(public key, secret vector in NTT form) of d (K-PKE.KeyGen, algorithm 13)."""
    rho, sigma = _g(seed + bytes([K]))
    noise = [_ntt(_noise(_prf(sigma, counter))) for counter in range(2 * K)]
    secret, error = noise[:K], noise[K:]
    rows = [_add(_dot([_sample(rho, j, i) for j in range(K)], secret), error[i]) for i in range(K)]
    return b"".join(_bytes(row, 12) for row in rows) + rho, secret


def _encrypt(public_key, message, randomness):
    """K-PKE.Encrypt, algorithm 14."""
    rows, rho = _polynomials(public_key[:-32], 12), public_key[-32:]
    y = [_ntt(_noise(_prf(randomness, counter))) for counter in range(K)]
    errors = [_noise(_prf(randomness, K + counter)) for counter in range(K + 1)]
    u = [_add(_inverse_ntt(_dot([_sample(rho, i, j) for j in range(K)], y)), errors[i]) for i in range(K)]
    v = _add(_add(_inverse_ntt(_dot(rows, y)), errors[K]), _decompress(_bits(message, 1), 1))
    return b"".join(_bytes(_compress(part, DU), DU) for part in u) + _bytes(_compress(v, DV), DV)


def public_key(seed):
    """The public key of d ‖ z."""
    return _keys(seed[:32])[0]


def encapsulate(public, randomness):
    """(ciphertext, secret) for 32 bytes of randomness (ML-KEM.Encaps_internal, algorithm 17)."""
    secret, coins = _g(randomness + hashlib.sha3_256(public).digest())
    return _encrypt(public, randomness, coins), secret


def decapsulate(ciphertext, seed):
    """The secret of a ciphertext, for the private key d ‖ z (algorithm 18, with implicit rejection)."""
    public, secret = _keys(seed[:32])
    u = [_ntt(_decompress(part, DU)) for part in _polynomials(ciphertext[:32 * DU * K], DU)]
    v = _decompress(_bits(ciphertext[32 * DU * K:], DV), DV)
    inner = _inverse_ntt(_dot(secret, u))
    message = _bytes(_compress([(x - y) % Q for x, y in zip(v, inner)], 1), 1)
    found, coins = _g(message + hashlib.sha3_256(public).digest())
    if _encrypt(public, message, coins) == ciphertext:
        return found
    return hashlib.shake_256(seed[32:] + ciphertext).digest(32)
