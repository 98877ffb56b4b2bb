//! JavaScript in process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use piton_code::{CodeError, CodeLimits, JavaScript, Surroundings};
use piton_types::{Random, Timestamp, Value, from_json, to_json};

/// Not random at all.
struct Counter(AtomicU8);

impl Random for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill_with(|| self.0.fetch_add(1, Ordering::SeqCst));
    }
}

fn run_within(code: &str, inputs: &str, limits: &CodeLimits) -> Result<Value, CodeError> {
    let surroundings = Surroundings {
        now: Timestamp::from_millis(1_700_000_000_123),
        random: Arc::new(Counter(AtomicU8::new(0))),
        stop: Arc::default(),
    };
    JavaScript.run(code, &from_json(inputs.as_bytes()).unwrap(), limits, &surroundings)
}

fn run(code: &str, inputs: &str) -> Result<String, CodeError> {
    run_within(code, inputs, &CodeLimits::default()).map(|value| to_json(&value).unwrap().to_string())
}

fn small() -> CodeLimits {
    CodeLimits { time: Duration::from_millis(200), memory: 8 << 20, output: 1 << 20 }
}

#[test]
fn main_is_called_with_the_inputs() {
    let code = "function main({a, b}) { return {sum: a + b, list: [a, b, null], text: `${a}`} }";
    assert_eq!(run(code, r#"{"a": 1, "b": 2.5}"#).unwrap(), r#"{"list":[1,2.5,null],"sum":3.5,"text":"1"}"#);
    assert_eq!(run("const main = async (x) => { await null; return x.n * 2 }", r#"{"n": 21}"#).unwrap(), "42");
    assert_eq!(run("var main = () => undefined", "{}").unwrap(), "null");
}

#[test]
fn values_come_through_as_they_are() {
    let inputs = r#"{"b":true,"big":9007199254740993,"f":-0.5,"n":null,"nested":{"x":[{"y":"ü\u0000"}]},"zero":0}"#;
    let through = run("function main(x) { return x }", inputs).unwrap();
    assert_eq!(through, inputs.replace("9007199254740993", "9007199254740992"), "floats have 53 bits");
    assert_eq!(
        run("function main() { return {u: undefined, f() {}, d: new Date(0), m: 7n} }", "{}").unwrap(),
        r#"{"d":"1970-01-01T00:00:00.000Z","m":7}"#
    );
}

#[test]
fn what_json_lacks_is_refused_and_not_bent() {
    for code in ["return NaN", "return {a: [1/0]}", "return 2n ** 80n", "let x = {}; x.x = x; return x"] {
        let error = run(&format!("function main() {{ {code} }}"), "{}").unwrap_err();
        assert!(matches!(error, CodeError::Result(_)), "{code}: {error}");
    }
}

#[test]
fn errors_say_what_was_thrown() {
    let thrown = |code: &str| run(code, "{}").unwrap_err();
    assert_eq!(thrown("function main() { throw new Error('boom') }").to_string(), "Error: boom");
    assert_eq!(thrown("function main() { return missing }").to_string(), "ReferenceError: missing is not defined");
    assert_eq!(thrown("function main() { throw 'a word' }").to_string(), "a word");
    assert_eq!(thrown("async function main() { throw new TypeError('later') }").to_string(), "TypeError: later");
    assert_eq!(
        thrown("function main() { return new Promise(() => {}) }").to_string(),
        "what main promised never comes"
    );
    assert!(matches!(thrown("function main( {"), CodeError::Syntax(_)));
    assert!(matches!(thrown("let x = 1"), CodeError::NoMain));
    assert!(matches!(thrown("var main = 3"), CodeError::NoMain));
}

/// Promise 24, and the issue's bad inputs: none of these may take longer, more or down.
#[test]
fn limits_hold_and_the_next_call_is_none_the_worse() {
    for code in [
        "function main() { while (true) {} }",
        "function main() { while (true) { try { while (true) {} } catch (e) {} } }",
        "async function main() { while (true) { await null } }",
        "function main() { return /^(a+)+$/.test('a'.repeat(40) + 'b') }",
        "while (true) {}; function main() {}",
        "function main() { return {toJSON() { while (true) {} }} }",
    ] {
        let error = run_within(code, "{}", &small()).unwrap_err();
        assert!(matches!(error, CodeError::TimedOut { .. }), "{code}: {error:?}");
    }
    for code in [
        "function main() { const a = []; while (true) a.push(new Array(1000).fill(1)) }",
        "function main() { let s = 'x'; while (true) s += s }",
        "function main() { return new Uint8Array(1 << 30) }",
    ] {
        let error = run_within(code, "{}", &small()).unwrap_err();
        assert!(matches!(error, CodeError::OutOfMemory { .. } | CodeError::Thrown(_)), "{code}: {error:?}");
    }
    let error = run_within("function main() { return main() }", "{}", &small()).unwrap_err();
    assert!(matches!(&error, CodeError::Thrown(text) if text.contains("stack")), "{error:?}");
    let error = run_within("function main() { return 'x'.repeat(2 << 20) }", "{}", &small()).unwrap_err();
    assert!(matches!(error, CodeError::TooMuchOutput { .. }), "{error:?}");
    let error = run_within(
        "function main() { return {get a() { return 'x'.repeat(900000) }, get b() { return this.a }} }",
        "{}",
        &small(),
    )
    .unwrap_err();
    assert!(matches!(error, CodeError::TooMuchOutput { .. }), "{error:?}");
    assert_eq!(run("function main() { return 'well' }", "{}").unwrap(), "\"well\"");
}

/// An error is kept in logs and shown to people: whatever code puts into one, it is short.
#[test]
fn an_error_of_a_hundred_megabytes_is_cut() {
    for code in [
        "throw new Error('x'.repeat(100 << 20))",
        "throw 'x'.repeat(100 << 20)",
        "const e = new Error('y'); e.name = 'x'.repeat(100 << 20); throw e",
    ] {
        let error = run(&format!("function main() {{ {code} }}"), "{}").unwrap_err();
        let CodeError::Thrown(message) = &error else { panic!("{code}") };
        assert!(message.len() < 70_000, "{code}: {}", message.len());
        assert!(message.ends_with("more bytes were cut)"), "{code}");
    }
}

#[test]
fn there_is_no_way_out() {
    let names = "['require', 'process', 'std', 'os', 'fetch', 'XMLHttpRequest', 'Deno', 'module', 'load', 'print', 'scriptArgs']";
    let code =
        format!("function main() {{ return {names}.filter((name) => typeof globalThis[name] !== 'undefined') }}");
    assert_eq!(run(&code, "{}").unwrap(), "[]");
    assert!(run("async function main() { return await import('std') }", "{}").is_err());
    assert!(run("import * as os from 'os'; function main() {}", "{}").is_err());
}

#[test]
fn nothing_of_one_call_is_seen_by_the_next() {
    run("globalThis.left = 1; Array.prototype.left = 2; Object.prototype.left = 3; function main() { return 1 }", "{}")
        .unwrap();
    let code = "function main() { return [typeof left, typeof [].left, typeof ({}).left] }";
    assert_eq!(run(code, "{}").unwrap(), r#"["undefined","undefined","undefined"]"#);
}

/// Many calls on one runtime: what each leaves behind is collected.
#[test]
fn memory_stays_flat_over_many_calls() {
    let limits = CodeLimits { memory: 4 << 20, ..small() };
    for _ in 0..200 {
        run_within(
            "var a = []; a.push(a); var b = new Array(20000).fill(a); function main() { return 1 }",
            "{}",
            &limits,
        )
        .unwrap();
    }
}

/// The functions of the flat form's own engine.
#[test]
fn functions_beside_the_language() {
    let code = r#"function main() {
        const key = "00".repeat(32);
        const sealed = crypto.aesEncrypt("hello", key);
        return {
            md5: crypto.md5("hello"), sha1: crypto.sha1("hello"), sha256: crypto.sha256("hello"),
            sha512: crypto.sha512("hello").slice(0, 16), hmac: crypto.hmacSha256("k", "hello").slice(0, 16),
            opened: crypto.aesDecrypt(sealed.ciphertext, key, sealed.iv),
            base64: atob(btoa("grüß")), uuid: uuidv4(), bytes: randomBytes(4), five: randomInt(5, 5),
            unit: random.randomFloat() < 1,
            at: [datetime.now(), datetime.timestamp(), datetime.isoString(), datetime.format("%Y/%m/%d")],
        } }"#;
    let text = run(code, "{}").unwrap();
    for part in [
        r#""md5":"5d41402abc4b2a76b9719d911017c592""#,
        r#""sha1":"aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d""#,
        r#""sha256":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824""#,
        r#""sha512":"9b71d224bd62f378""#,
        r#""hmac":"406e4b43f87095aa""#,
        r#""opened":"hello""#,
        r#""base64":"grüß""#,
        r#""five":5"#,
        r#""unit":true"#,
        r#""at":[1700000000123,1700000000123,"2023-11-14T22:13:20.123Z","2023/11/14"]"#,
    ] {
        assert!(text.contains(part), "{part} isn't in {text}");
    }
    assert!(
        run("function main() { return crypto.aesDecrypt('AA==', '00'.repeat(32), 'AAAAAAAAAAAAAAAA') }", "{}").is_err()
    );
    assert!(run("function main() { return crypto.aesEncrypt('x', 'short') }", "{}").is_err());
    assert!(run("function main() { return randomBytes(1e9) }", "{}").is_err());
}

#[test]
fn callbacks_on_a_stream_get_its_text() {
    let code = "function main(inputs) {
        let all = '';
        inputs.text.on_chunk((chunk) => { all += chunk; return all }).on_end((text) => text.toUpperCase());
        return { began: true } }";
    assert_eq!(run(code, r#"{"text": "ab"}"#).unwrap(), r#"{"began":true,"output":"AB"}"#);
    let code = "function main(inputs) { return { text: inputs.text + '!' } } // on_chunk isn't used";
    assert_eq!(run(code, r#"{"text": "ab"}"#).unwrap(), r#"{"text":"ab!"}"#);
}

const PATIENCE: Duration = Duration::from_secs(60);

async fn start(code: &str, limits: CodeLimits) -> Result<Value, CodeError> {
    let random = Arc::new(Counter(AtomicU8::new(0)));
    let surroundings = Surroundings { now: Timestamp::from_millis(0), random, stop: Arc::default() };
    JavaScript.start(code.into(), Value::map([("n", 1.into())]), limits, surroundings).await
}

/// Engines are made ahead, and none is used twice: whatever a script does to its own, no other sees it.
#[tokio::test]
async fn no_script_sees_what_another_left() {
    let code = "function main() {
        const seen = [globalThis.left, Array.prototype.left, Object.prototype.left, String.prototype.trim.left];
        globalThis.left = Array.prototype.left = Object.prototype.left = String.prototype.trim.left = 'here';
        JSON.parse = () => 'mine';
        return seen.filter((found) => found !== undefined).length;
    }";
    for round in 0..50 {
        assert_eq!(start(code, CodeLimits::default()).await.unwrap(), 0.into(), "{round}");
        if round % 10 == 0 {
            // Those that are ready have been made by now.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What takes longer than a moment doesn't hold up its caller, and comes to the same.
#[tokio::test]
async fn a_long_script_holds_nobody_up() {
    let code = "function main({n}) { const end = Date.now() + 300; while (Date.now() < end) n += 0; return {n} }";
    let mut turns = 0;
    let others = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            turns += 1;
        }
    };
    let result = tokio::select! {
        result = start(code, CodeLimits::default()) => result,
        () = others => unreachable!(),
    };
    assert_eq!(result.unwrap(), Value::map([("n", 1.into())]));
    assert!(turns > 5, "others had {turns} turns");
}

/// Promise 24, where a script begins and where it is moved to.
#[tokio::test]
async fn limits_hold_wherever_a_script_runs() {
    for (code, is_right) in [
        ("for (;;) {}", (|error| matches!(error, CodeError::TimedOut { .. })) as fn(&CodeError) -> bool),
        ("let a = []; for (;;) a.push('x'.repeat(1000) + a.length)", |e| matches!(e, CodeError::OutOfMemory { .. })),
        ("return 'x'.repeat(64 << 20)", |e| matches!(e, CodeError::OutOfMemory { .. })),
        ("return Array(1000).fill('x'.repeat(10000))", |e| matches!(e, CodeError::TooMuchOutput { .. })),
        ("const f = () => f() + 1; return f()", |e| matches!(e, CodeError::Thrown(_))),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", |e| matches!(e, CodeError::TimedOut { .. })),
    ] {
        // On a busy machine it takes long to use up much memory.
        let time = if is_right(&CodeError::TimedOut { after: Duration::ZERO }) { small().time } else { PATIENCE };
        let limits = CodeLimits { time, ..small() };
        let error = start(&format!("function main() {{ {code} }}"), limits).await.unwrap_err();
        assert!(is_right(&error), "{code}: {error:?}");
    }
    let next = start("function main({n}) { return n }", CodeLimits { time: PATIENCE, ..small() }).await;
    assert_eq!(next.unwrap(), 1.into(), "the next is none the worse");
}
