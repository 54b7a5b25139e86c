/* The few BoringSSL functions that ward calls inside swift-crypto, by their prefixed names.
 *
 * They link from the objects of the package `swift-crypto`. It is pinned to one exact version,
 * because these names are not its public interface. Known-answer tests (`SelfTest`) cover all of
 * them before a key is used, and the test suite compares them with the public API. Declarations:
 * BoringSSL's aead.h, aes.h, hmac.h, hkdf.h, sha2.h, evp.h, curve25519.h, mlkem.h, bytestring.h. */
#ifndef WARD_BORINGSSL_H
#define WARD_BORINGSSL_H

#include <stddef.h>
#include <stdint.h>

/* EVP_AEAD_CTX: 584 bytes in this version; the rest is room for the next one. */
typedef struct ward_aead_ctx {
    _Alignas(16) unsigned char opaque[640];
} ward_aead_ctx;

/* AES_KEY: 244 bytes in this version. */
typedef struct ward_aes_key {
    _Alignas(16) unsigned char opaque[256];
} ward_aes_key;

/* MLKEM768_private_key, MLKEM768_public_key: exactly these sizes, mlkem.h. */
typedef struct ward_mlkem768_private_key {
    _Alignas(16) unsigned char opaque[7776];
} ward_mlkem768_private_key;
typedef struct ward_mlkem768_public_key {
    _Alignas(16) unsigned char opaque[6208];
} ward_mlkem768_public_key;

/* CBS, and CBB: 48 bytes in this version, bytestring.h. */
typedef struct ward_cbs {
    const uint8_t *data;
    size_t len;
} ward_cbs;
typedef struct ward_cbb {
    _Alignas(16) unsigned char opaque[128];
} ward_cbb;

_Static_assert(sizeof(ward_aead_ctx) == 640, "the slots of the secret heap are cut for this size");

const void *CCryptoBoringSSL_EVP_aead_aes_256_gcm(void);
const void *CCryptoBoringSSL_EVP_aead_aes_256_gcm_siv(void);
int CCryptoBoringSSL_EVP_AEAD_CTX_init(ward_aead_ctx *ctx, const void *aead, const uint8_t *key, size_t key_len,
                                       size_t tag_len, void *engine);
void CCryptoBoringSSL_EVP_AEAD_CTX_cleanup(ward_aead_ctx *ctx);
int CCryptoBoringSSL_EVP_AEAD_CTX_seal_scatter(const ward_aead_ctx *ctx, uint8_t *out, uint8_t *out_tag,
                                               size_t *out_tag_len, size_t max_out_tag_len, const uint8_t *nonce,
                                               size_t nonce_len, const uint8_t *in, size_t in_len,
                                               const uint8_t *extra_in, size_t extra_in_len, const uint8_t *ad,
                                               size_t ad_len);
int CCryptoBoringSSL_EVP_AEAD_CTX_open_gather(const ward_aead_ctx *ctx, uint8_t *out, const uint8_t *nonce,
                                              size_t nonce_len, const uint8_t *in, size_t in_len,
                                              const uint8_t *in_tag, size_t in_tag_len, const uint8_t *ad,
                                              size_t ad_len);

int CCryptoBoringSSL_AES_set_encrypt_key(const uint8_t *key, unsigned bits, ward_aes_key *aeskey);
int CCryptoBoringSSL_AES_set_decrypt_key(const uint8_t *key, unsigned bits, ward_aes_key *aeskey);
void CCryptoBoringSSL_AES_encrypt(const uint8_t *in, uint8_t *out, const ward_aes_key *key);
int CCryptoBoringSSL_AES_wrap_key(const ward_aes_key *key, const uint8_t *iv, uint8_t *out, const uint8_t *in,
                                  size_t in_len);
int CCryptoBoringSSL_AES_unwrap_key(const ward_aes_key *key, const uint8_t *iv, uint8_t *out, const uint8_t *in,
                                    size_t in_len);

const void *CCryptoBoringSSL_EVP_sha256(void);
uint8_t *CCryptoBoringSSL_SHA256(const uint8_t *data, size_t len, uint8_t *out);
uint8_t *CCryptoBoringSSL_HMAC(const void *evp_md, const void *key, size_t key_len, const uint8_t *data,
                               size_t data_len, uint8_t *out, unsigned int *out_len);
int CCryptoBoringSSL_HKDF(uint8_t *out_key, size_t out_len, const void *digest, const uint8_t *secret,
                          size_t secret_len, const uint8_t *salt, size_t salt_len, const uint8_t *info,
                          size_t info_len);
int CCryptoBoringSSL_EVP_PBE_scrypt(const char *password, size_t password_len, const uint8_t *salt, size_t salt_len,
                                    uint64_t N, uint64_t r, uint64_t p, size_t max_mem, uint8_t *out_key,
                                    size_t key_len);
void CCryptoBoringSSL_X25519_public_from_private(uint8_t out_public_value[32], const uint8_t private_key[32]);
int CCryptoBoringSSL_X25519(uint8_t out_shared_key[32], const uint8_t private_key[32],
                            const uint8_t peer_public_value[32]);
int CCryptoBoringSSL_MLKEM768_private_key_from_seed(ward_mlkem768_private_key *out_private_key, const uint8_t *seed,
                                                    size_t seed_len);
void CCryptoBoringSSL_MLKEM768_public_from_private(ward_mlkem768_public_key *out_public_key,
                                                   const ward_mlkem768_private_key *private_key);
void CCryptoBoringSSL_MLKEM768_encap(uint8_t *out_ciphertext, uint8_t *out_shared_secret,
                                     const ward_mlkem768_public_key *public_key);
int CCryptoBoringSSL_MLKEM768_decap(uint8_t *out_shared_secret, const uint8_t *ciphertext, size_t ciphertext_len,
                                    const ward_mlkem768_private_key *private_key);
int CCryptoBoringSSL_MLKEM768_marshal_public_key(ward_cbb *out, const ward_mlkem768_public_key *public_key);
int CCryptoBoringSSL_MLKEM768_parse_public_key(ward_mlkem768_public_key *out_public_key, ward_cbs *in);
int CCryptoBoringSSL_CBB_init_fixed(ward_cbb *cbb, uint8_t *buf, size_t len);
int CCryptoBoringSSL_CBB_finish(ward_cbb *cbb, uint8_t **out_data, size_t *out_len);
int CCryptoBoringSSL_CRYPTO_memcmp(const void *a, const void *b, size_t len);

#endif
