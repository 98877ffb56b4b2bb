//! Functions that code finds beside the language's own: digests, encryption, base64, random numbers, the
//! time; and callbacks on streams. Each family is only made for code that names it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use md5::digest::Digest as _;
use piton_types::Random;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{digest, hmac};
use rquickjs::function::Opt;
use rquickjs::{Ctx, Exception, Object, Result, Value as JsValue};

use super::{Surroundings, function};

/// How many random bytes code may ask for at once.
const MAX_RANDOM: usize = 64 << 10;

/// Strings as streams that have ended: callbacks get the whole text as the only piece, and as the end. A
/// callback's last result that isn't null is the output.
const STREAMS: &str = "(() => {
  const known = [];
  const register = (name) => function (callback) {
    let entry = known.find((entry) => entry.text === String(this));
    if (!entry) known.push(entry = { text: String(this) });
    entry[name] = callback;
    return this;
  };
  for (const name of ['on_chunk', 'on_end', 'on_error'])
    Object.defineProperty(String.prototype, name, { value: register(name), configurable: true });
  globalThis.__finish_streams = () => {
    let output;
    for (const { text, on_chunk, on_end } of known)
      for (const callback of [on_chunk, on_end]) {
        const result = callback === undefined ? undefined : callback(text);
        if (result !== undefined && result !== null) output = result;
      }
    return known.length === 0 ? undefined : output === undefined ? null : output;
  };
})()";

/// Whether code uses strings as streams.
fn streams(code: &str) -> bool {
    code.contains("on_chunk") || code.contains("on_end")
}

pub(super) fn install(ctx: &Ctx<'_>, code: &str, surroundings: &Surroundings) -> Result<()> {
    let globals = ctx.globals();
    if code.contains("crypto") {
        globals.set("crypto", crypto(ctx, &surroundings.random)?)?;
    }
    if code.contains("btoa") || code.contains("atob") {
        globals.set("btoa", function(ctx, |text: String| STANDARD.encode(text))?)?;
        globals.set("atob", function(ctx, atob)?)?;
    }
    if code.contains("uuidv4") || code.contains("random") {
        random(ctx, &globals, &surroundings.random)?;
    }
    if code.contains("datetime") {
        globals.set("datetime", datetime(ctx, surroundings)?)?;
    }
    if streams(code) {
        ctx.eval::<(), _>(STREAMS)?;
    }
    Ok(())
}

/// What the callbacks on streams made of them, if there are any.
pub(super) fn finish_streams<'js>(ctx: &Ctx<'js>, code: &str) -> Result<Option<JsValue<'js>>> {
    if !streams(code) {
        return Ok(None);
    }
    let output: JsValue<'js> = ctx.eval("globalThis.__finish_streams()")?;
    Ok((!output.is_undefined()).then_some(output))
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    (digits.len().is_multiple_of(2) && text.is_ascii()).then(|| pairs.collect::<Option<Vec<u8>>>())?
}

fn crypto<'js>(ctx: &Ctx<'js>, random: &Arc<dyn Random>) -> Result<Object<'js>> {
    let crypto = Object::new(ctx.clone())?;
    crypto.set("md5", function(ctx, |text: String| hex(Md5::digest(text)))?)?;
    for (name, algorithm) in
        [("sha1", &digest::SHA1_FOR_LEGACY_USE_ONLY), ("sha256", &digest::SHA256), ("sha512", &digest::SHA512)]
    {
        crypto.set(name, function(ctx, move |text: String| hex(digest::digest(algorithm, text.as_bytes())))?)?;
    }
    for (name, algorithm) in [("hmacSha256", hmac::HMAC_SHA256), ("hmacSha512", hmac::HMAC_SHA512)] {
        let sign = move |key: String, text: String| {
            hex(hmac::sign(&hmac::Key::new(algorithm, key.as_bytes()), text.as_bytes()))
        };
        crypto.set(name, function(ctx, sign)?)?;
    }
    let nonces = random.clone();
    let encrypt = move |ctx: Ctx<'js>, text: String, key: String| -> Result<Object<'js>> {
        let mut nonce = [0; NONCE_LEN];
        nonces.fill(&mut nonce);
        let mut bytes = text.into_bytes();
        let sealed =
            aes(&ctx, &key)?.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes);
        sealed.map_err(|_| Exception::throw_message(&ctx, "AES-256-GCM encryption failed"))?;
        let result = Object::new(ctx)?;
        result.set("ciphertext", STANDARD.encode(bytes))?;
        result.set("iv", STANDARD.encode(nonce))?;
        Ok(result)
    };
    crypto.set("aesEncrypt", function(ctx, encrypt)?)?;
    let decrypt = |ctx: Ctx<'js>, text: String, key: String, nonce: String| -> Result<String> {
        let decode = |text: String, what| STANDARD.decode(text).map_err(|_| Exception::throw_type(&ctx, what));
        let mut bytes = decode(text, "the ciphertext must be base64")?;
        let nonce: Option<[u8; NONCE_LEN]> = decode(nonce, "the iv must be base64")?.try_into().ok();
        let nonce = nonce.ok_or_else(|| Exception::throw_type(&ctx, "the iv must have 12 bytes"))?;
        let opened = aes(&ctx, &key)?.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes);
        let opened = opened.map_err(|_| Exception::throw_message(&ctx, "AES-256-GCM decryption failed"))?;
        String::from_utf8(opened.to_vec()).map_err(|_| Exception::throw_type(&ctx, "what was encrypted isn't text"))
    };
    crypto.set("aesDecrypt", function(ctx, decrypt)?)?;
    let bytes = random.clone();
    crypto.set("randomUUID", function(ctx, move || uuid(&*bytes))?)?;
    Ok(crypto)
}

fn aes(ctx: &Ctx<'_>, key: &str) -> Result<LessSafeKey> {
    let key = unhex(key).and_then(|key| UnboundKey::new(&AES_256_GCM, &key).ok());
    let key = key.ok_or_else(|| Exception::throw_type(ctx, "the key must be 32 bytes in hex"))?;
    Ok(LessSafeKey::new(key))
}

fn atob(ctx: Ctx<'_>, text: String) -> Result<String> {
    let bytes = STANDARD.decode(text).map_err(|_| Exception::throw_type(&ctx, "invalid base64"))?;
    String::from_utf8(bytes).map_err(|_| Exception::throw_type(&ctx, "what base64 encodes isn't text"))
}

fn uuid(random: &dyn Random) -> String {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let text = hex(bytes);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// In 0..1.
fn unit(random: &dyn Random) -> f64 {
    let mut bytes = [0; 8];
    random.fill(&mut bytes);
    (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
}

fn random<'js>(ctx: &Ctx<'js>, globals: &Object<'js>, random: &Arc<dyn Random>) -> Result<()> {
    let group = Object::new(ctx.clone())?;
    let source = random.clone();
    globals.set("uuidv4", function(ctx, move || uuid(&*source))?)?;
    let source = random.clone();
    let int = function(ctx, move |ctx: Ctx<'js>, least: Opt<f64>, most: Opt<f64>| -> Result<f64> {
        let (least, most) = (least.0.unwrap_or(0.0).floor(), most.0.unwrap_or(100.0).floor());
        if least > most {
            return Err(Exception::throw_range(&ctx, "the least is more than the most"));
        }
        Ok((least + (unit(&*source) * (most - least + 1.0)).floor()).min(most))
    })?;
    let source = random.clone();
    let float = function(ctx, move || unit(&*source))?;
    let source = random.clone();
    let bytes = function(ctx, move |ctx: Ctx<'js>, count: Opt<f64>| -> Result<String> {
        let count = count.0.unwrap_or(16.0) as usize;
        if count > MAX_RANDOM {
            return Err(Exception::throw_range(&ctx, "that is too many bytes"));
        }
        let mut bytes = vec![0; count];
        source.fill(&mut bytes);
        Ok(hex(bytes))
    })?;
    for (name, value) in [("randomInt", int), ("randomFloat", float), ("randomBytes", bytes)] {
        globals.set(name, value.clone())?;
        group.set(name, value)?;
    }
    globals.set("random", group)
}

fn datetime<'js>(ctx: &Ctx<'js>, surroundings: &Surroundings) -> Result<Object<'js>> {
    let now = surroundings.now;
    let datetime = Object::new(ctx.clone())?;
    for name in ["now", "timestamp"] {
        datetime.set(name, function(ctx, move || now.as_millis() as f64)?)?;
    }
    datetime.set("isoString", function(ctx, move || now.to_string())?)?;
    let format = move |ctx: Ctx<'js>, form: Opt<String>| -> Result<String> {
        let bad = |error: jiff::Error| Exception::throw_type(&ctx, &error.to_string());
        let at = jiff::Timestamp::from_millisecond(now.as_millis()).map_err(bad)?;
        let at = at.to_zoned(jiff::tz::TimeZone::UTC);
        jiff::fmt::strtime::format(form.0.as_deref().unwrap_or("%Y-%m-%d %H:%M:%S"), &at).map_err(bad)
    };
    datetime.set("format", function(ctx, format)?)?;
    Ok(datetime)
}
