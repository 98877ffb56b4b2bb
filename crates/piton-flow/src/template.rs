//! Templates: Jinja, rendered once, with fuel and a bound on what comes out. What is put into a
//! template is a value and never looked at as a template again.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, LazyLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Value as JinjaValue, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior};
use piton_types::Value;

use crate::format::on_a_large_stack;
use crate::guard;
use crate::pool::VariablePool;
use crate::selector::Selector;

/// How many instructions one rendering may take.
const FUEL: u64 = 1_000_000;

/// How many bytes one rendering may give.
const MAX_OUTPUT: usize = 8 << 20;

/// The name under which the values of `{{#node.variable#}}` stand, in order.
const REFERENCES: &str = "__references";

/// A template that was checked. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Template {
    environment: Arc<Environment<'static>>,
    references: Arc<[Selector]>,
    /// The names that it uses and doesn't make itself, if it isn't plain text.
    names: Arc<[String]>,
    is_lenient: bool,
    /// Whether it may call itself: how deep is known only when it is rendered.
    recurses: bool,
}

/// What a template says that calls itself.
const RECURSES: [&str; 5] = ["macro", "recursive", "include", "import", "extends"];

/// The only template of an environment.
const NAME: &str = "template";

/// An environment without templates. Cloning it costs little: what it knows is shared.
static BASE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.add_filter(guard::PAY, guard::pay);
    environment.add_filter(guard::PAY_USE, guard::pay_use);
    guard::bound_filters(&mut environment);
    environment
});

/// A function that templates may call.
pub(crate) type TemplateFunction = dyn Fn(&[Value]) -> Result<Value, String> + Send + Sync;

/// Functions that templates may call, by name.
#[derive(Clone, Default)]
pub(crate) struct Functions(Arc<BTreeMap<String, Arc<TemplateFunction>>>);

impl Functions {
    pub(crate) fn add(&mut self, name: String, function: Arc<TemplateFunction>) {
        Arc::make_mut(&mut self.0).insert(name, function);
    }

    #[cfg(feature = "plugin-system")]
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn install(&self, environment: &mut Environment<'_>) {
        for (name, function) in &*self.0 {
            let function = Arc::clone(function);
            let call = move |arguments: Rest<JinjaValue>| {
                let failed = |message| minijinja::Error::new(ErrorKind::InvalidOperation, message);
                let arguments: Result<Vec<_>, _> = arguments.iter().map(plain).collect();
                guard::pay(jinja(&function(&arguments?).map_err(failed)?))
            };
            environment.add_filter(name.clone(), call.clone());
            environment.add_function(name.clone(), call);
        }
    }
}

impl Template {
    /// A template of Jinja alone, in which a variable that isn't there is empty.
    pub(crate) fn jinja(source: &str, functions: &Functions) -> Result<Self, String> {
        Self::compile(source.to_owned(), Vec::new(), UndefinedBehavior::Lenient, functions)
    }

    /// A template that may also say `{{#node.variable#}}`, and in which a variable that isn't there is
    /// an error.
    pub(crate) fn with_references(source: &str, functions: &Functions) -> Result<Self, String> {
        let (source, references) = resolve(source)?;
        Self::compile(source, references, UndefinedBehavior::Strict, functions)
    }

    /// A text for people or models: `{{#node.variable#}}` and Jinja, in which what isn't there is empty.
    pub(crate) fn prompt(source: &str, functions: &Functions) -> Result<Self, String> {
        let (source, references) = resolve(source)?;
        Self::compile(source, references, UndefinedBehavior::Lenient, functions)
    }

    fn compile(
        source: String,
        references: Vec<Selector>,
        undefined: UndefinedBehavior,
        functions: &Functions,
    ) -> Result<Self, String> {
        let is_lenient = matches!(undefined, UndefinedBehavior::Lenient);
        let mut environment = BASE.clone();
        environment.set_undefined_behavior(undefined);
        functions.install(&mut environment);
        let recurses = RECURSES.iter().any(|word| source.contains(word));
        let guarded = guard::guard(&source).map_err(|error| describe(&error))?;
        environment.add_template_owned(NAME, guarded).map_err(|error| describe(&error))?;
        let names = environment.get_template(NAME).map_err(|error| describe(&error))?.undeclared_variables(false);
        let names = names.into_iter().filter(|name| name != REFERENCES).collect();
        Ok(Self { environment: Arc::new(environment), references: references.into(), names, is_lenient, recurses })
    }

    /// The variables that it names by reference.
    pub fn references(&self) -> &[Selector] {
        &self.references
    }

    /// The names that it uses and that are neither these nor functions.
    pub(crate) fn undefined(&self, known: &[&str]) -> Vec<&str> {
        let is_global = |name: &str| self.environment.globals().any(|(global, _)| global == name);
        self.names.iter().map(String::as_str).filter(|name| !known.contains(name) && !is_global(name)).collect()
    }

    /// Renders with these variables.
    pub(crate) fn render(&self, variables: &BTreeMap<String, Value>) -> Result<String, String> {
        self.render_value(jinja_map(variables))
    }

    /// Renders with the variables of a pool: by reference, and by the ids of nodes.
    pub fn render_pool(&self, pool: &VariablePool) -> Result<String, String> {
        // Only what it names: a pool may be large.
        let mut variables: BTreeMap<String, JinjaValue> = BTreeMap::new();
        for name in &*self.names {
            if let Some(scope) = pool.scope(name) {
                variables.insert(name.clone(), JinjaValue::from_object(jinja_map(scope)));
            }
        }
        let found: Result<Vec<_>, _> = self
            .references
            .iter()
            .map(|reference| match pool.find(reference) {
                Some(value) => Ok(jinja(value)),
                None if self.is_lenient => Ok(JinjaValue::from("")),
                None => Err(format!("Variable not found: {reference}")),
            })
            .collect();
        variables.insert(REFERENCES.to_owned(), JinjaValue::from_object(found?));
        self.render_value(variables)
    }

    fn render_value(&self, variables: BTreeMap<String, JinjaValue>) -> Result<String, String> {
        // The caller's stack is in use already: the bound on recursion holds on one of the template's own.
        if self.recurses { on_a_large_stack(|| self.render_here(variables))? } else { self.render_here(variables) }
    }

    fn render_here(&self, variables: BTreeMap<String, JinjaValue>) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|error| describe(&error))?;
        guard::begin();
        let mut output = Bounded(Vec::new());
        template
            .render_captured_to(JinjaValue::from_object(variables), &mut output)
            .map_err(|error| describe(&error))?;
        String::from_utf8(output.0).map_err(|error| error.to_string())
    }
}

/// `{{#node.variable#}}` as the Jinja expression that it stands for.
fn resolve(source: &str) -> Result<(String, Vec<Selector>), String> {
    let (mut resolved, mut references) = (String::with_capacity(source.len()), Vec::new());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{{#") {
        let Some((reference, behind)) = after.split_once("#}}") else {
            return Err("'{{#' has no '#}}' behind it".to_owned());
        };
        let words: Vec<_> = reference.trim().split('.').map(str::to_owned).collect();
        if words
            .iter()
            .any(|word| word.is_empty() || word.contains(['{', '}', '#']) || word.chars().any(char::is_control))
        {
            let shown: String = reference.chars().take(40).collect();
            return Err(format!("{shown:?} should be a node's id, a dot and one of its variables"));
        }
        resolved.push_str(before);
        resolved.push_str(&format!("{{{{ {REFERENCES}[{}] }}}}", references.len()));
        references.push(Selector::new(words)?);
        rest = behind;
    }
    resolved.push_str(rest);
    Ok((resolved, references))
}

/// A value as templates see it.
fn jinja(value: &Value) -> JinjaValue {
    match value {
        Value::Null => JinjaValue::from(()),
        Value::Bool(b) => JinjaValue::from(*b),
        Value::Int(n) => JinjaValue::from(*n),
        Value::UInt(n) => JinjaValue::from(*n),
        Value::Float(x) => JinjaValue::from(*x),
        Value::String(text) => JinjaValue::from(text.as_str()),
        Value::Bytes(bytes) => JinjaValue::from_bytes(bytes.clone()),
        Value::List(items) => items.iter().map(jinja).collect(),
        Value::Map(entries) => JinjaValue::from_object(jinja_map(entries)),
    }
}

/// A value of a template as others see it.
fn plain(value: &JinjaValue) -> Result<Value, minijinja::Error> {
    Ok(match value.kind() {
        ValueKind::Undefined | ValueKind::None => Value::Null,
        ValueKind::Bool => value.is_true().into(),
        ValueKind::Number => match (value.as_i64(), f64::try_from(value.clone())) {
            (Some(whole), _) if value.is_integer() => whole.into(),
            (_, Ok(number)) => number.into(),
            (_, Err(error)) => return Err(error),
        },
        ValueKind::Bytes => Value::Bytes(value.as_bytes().unwrap_or_default().to_vec()),
        ValueKind::Seq | ValueKind::Iterable => {
            Value::List(value.try_iter()?.map(|item| plain(&item)).collect::<Result<_, _>>()?)
        }
        ValueKind::Map => {
            let entry = |key: JinjaValue| Ok((key.to_string(), plain(&value.get_item(&key)?)?));
            Value::Map(value.try_iter()?.map(entry).collect::<Result<_, minijinja::Error>>()?)
        }
        _ => value.to_string().into(),
    })
}

fn jinja_map(entries: &BTreeMap<String, Value>) -> BTreeMap<String, JinjaValue> {
    entries.iter().map(|(key, value)| (key.clone(), jinja(value))).collect()
}

/// The error with its cause, without the listing of the source that the alternate form has.
fn describe(error: &minijinja::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Takes so many bytes and then no more.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::Error::other(format!("more than {MAX_OUTPUT} bytes came out")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> VariablePool {
        let mut pool = VariablePool::default();
        let (text, list) = (Value::from("{{ 7 * 6 }} <b>"), Value::from(vec![1.into(), 2.into()]));
        pool.set_scope("a", [("text".to_owned(), text), ("list".to_owned(), list)].into());
        pool.set_scope("odd \"id\"", [("x".to_owned(), 1.into())].into());
        pool
    }

    #[test]
    fn references_and_jinja_see_the_same() {
        let render = |source: &str| {
            Template::with_references(source, &Functions::default()).unwrap().render_pool(&pool()).unwrap()
        };
        assert_eq!(render("{{#a.text#}}|{{ a.text }}"), "{{ 7 * 6 }} <b>|{{ 7 * 6 }} <b>", "rendered once, unescaped");
        assert_eq!(render("{{#a.list.1#}}{{# odd \"id\".x #}}\n"), "21\n");
    }

    #[test]
    fn what_is_not_there_is_an_error_in_a_reference() {
        let missing = Template::with_references("{{#a.gone#}}", &Functions::default()).unwrap();
        assert!(missing.render_pool(&pool()).is_err());
        assert_eq!(
            Template::jinja("[{{ gone }}]", &Functions::default()).unwrap().render(&BTreeMap::new()).unwrap(),
            "[]"
        );
    }

    /// What makes values is made to pay for them, and gives the same as before.
    #[test]
    fn a_guarded_template_says_the_same() {
        let names = BTreeMap::from([
            ("x".to_owned(), Value::from("ab")),
            ("n".to_owned(), Value::from(3)),
            ("xs".to_owned(), Value::from(vec!["p".into(), "q".into()])),
        ]);
        for (source, expected) in [
            ("{% set y = x ~ x %}{{ y }}", "abab"),
            ("{% set y = (x ~ '-') ~ (x) %}{{ y|upper|trim }}{{ (y) ~ 1 }}", "AB-ABab-ab1"),
            (
                "{% for v in xs %}{{ loop.index }}{{ v ~ (n * 2 + 1) }}{% if not loop.last %}, {% endif %}{% endfor %}",
                "1p7, 2q7",
            ),
            (
                "{%- set ns = namespace(t='') -%}{%- for v in xs -%}{%- set ns.t = ns.t ~ v -%}{%- endfor -%}{{- ns.t -}}",
                "pq",
            ),
            ("{% macro f(a, b='!') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(f(x), b=n) }}", "<<ab!>3>"),
            ("{% set y %}{{ x }}{{ x }}{% endset %}{{ y|length }}", "4"),
            ("{% with a = x ~ 1, b = 2 %}{{ a ~ b }}{% endwith %}", "ab12"),
            ("{% set m = {'k': [x ~ 1, 2]} %}{{ m.k[0] }}{{ m['k'][1] + 1 }}{{ 'a' if x == 'ab' else 'b' }}", "ab13a"),
            ("{% set a, b = 1, x[0:1] ~ 'z' %}{{ a }}{{ b }}{{ -n + 1 }}{{ x is defined and n > 2 }}", "1az-2True"),
            (
                "{% set y = x|replace('a', 'A' ~ n)|default('q') %}{{ y }}{{ nope|default('d') }}{{ xs|join(', ') }}",
                "A3bdp, q",
            ),
            (
                "{% filter upper %}{{ x }}{% endfilter %}{% call f2() %}in{% endcall %}{% macro f2() %}[{{ caller() }}]{% endmacro %}",
                "",
            ),
        ] {
            match Template::jinja(source, &Functions::default()).and_then(|template| template.render(&names)) {
                Ok(found) => assert_eq!(found, expected, "{source}"),
                // The last calls a macro before it is there, with or without a guard.
                Err(error) => assert!(expected.is_empty() && error.contains("f2"), "{source}: {error}"),
            }
        }
    }

    /// Every way to double a text again and again.
    #[test]
    fn a_template_can_not_eat_memory() {
        let many = |piece: &str| piece.repeat(60);
        let nested = |open: &str, close: &str| format!("{}{{{{ x|length }}}}{}", open.repeat(60), close.repeat(60));
        for evil in [
            format!("{{% set x = 'abcdefgh' %}}{}{{{{ x|length }}}}", many("{% set x = x ~ x %}")),
            format!("{{% set x = 'abcdefgh' %}}{}", many("{% set x = x + x %}")),
            format!("{{% set x = [1, 2] %}}{}", many("{% set x = x + x %}")),
            format!("{{% set x = 'abcdefgh' %}}{}", many("{% set x %}{{ x }}{{ x }}{% endset %}")),
            format!("{{% set x = 'abcdefgh' %}}{}", many("{% set x = [x, x]|join %}")),
            format!("{{% set x = 'abcdefgh' %}}{}", many("{% set x = x|replace('a', x) %}")),
            "{% set ns = namespace(x='ab') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}".to_owned(),
            "{% set ns = namespace(x='ab') %}{% for i in range(99999) %}{% set ns.x = ns.x ~ '0123456789' * 99 %}{% endfor %}".to_owned(),
            format!("{{% set x = 'ab' %}}{}", nested("{% for x in [x ~ x] %}", "{% endfor %}")),
            format!("{{% set x = 'ab' %}}{}", nested("{% with x = x ~ x %}", "{% endwith %}")),
            format!("{{% set x = [1, 2] %}}{}{{% set y %}}{{{{ x }}}}{{% endset %}}", many("{% set x = [x, x] %}")),
            "{{ ('a' * 9999999)|replace('a', 'b' * 9999999) }}".to_owned(),
            "{{ range(99999)|join('b' * 9999999) }}".to_owned(),
            "{{ 'a'|indent(99999999999, true) }}".to_owned(),
            "{{ '%99999999999d'|format(1) }}".to_owned(),
            format!("{{% set y %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}", "raw ".repeat(500)),
            format!("{{% macro f(x) %}}{{{{ x }}}}{{{{ x }}}}{{% endmacro %}}{{{{ {}'ab'{} }}}}", "f(".repeat(40), ")".repeat(40)),
        ] {
            let shown: String = evil.chars().take(90).collect();
            let error = Template::jinja(&evil, &Functions::default()).unwrap().render(&BTreeMap::new()).unwrap_err();
            let bounded = ["on the way", "came out", "too large", "fuel"].iter().any(|word| error.contains(word));
            assert!(bounded, "{shown}: {error}");
        }
    }

    /// Every way to be deep: as many as that, and around one.
    fn deep(n: usize) -> Vec<String> {
        let many = |piece: &str| piece.repeat(n);
        let chain = |piece: &str| format!("{{{{ a{} }}}}", many(piece));
        let around = |open: &str, close: &str| format!("{{% set x = {}1{} %}}", many(open), many(close));
        let mut deep: Vec<String> =
            ["+a", " ~ a", " and a", "**a", ".a", "[0]", "()", "|upper", " is defined", " if a else a"]
                .map(chain)
                .into();
        deep.extend(
            [("(", ")"), ("[", "]"), ("{1:", "}"), ("f(", ")"), ("not ", ""), ("-", "")].map(|(a, b)| around(a, b)),
        );
        deep.extend([
            format!("{{% if a %}}{}{{% endif %}}", many("{% elif a %}x")),
            format!("{}{}", many("{% if a %}"), many("{% endif %}")),
            format!("{}{}", many("{% for a in b %}"), many("{% endfor %}")),
            format!("{}{}", many("{% set a %}"), many("{% endset %}")),
            format!("{{% filter upper{} %}}{{% endfilter %}}", many("|upper")),
            format!("{{% set {}a{} = 1 %}}", many("("), many(")")),
            format!("{}{}", many("{% if f([(f(a ~ 1), a)]) %}"), many("{% endif %}")),
        ]);
        deep.extend(["[ns.x]", "(ns.x, 1)", "{'a': ns.x}", "[ns.x or 1]", "[ns.x if a is undefined]", "ns.x, 1"].map(
            |value| {
                format!(
                    "{{% set ns = namespace(x=1) %}}{{% for i in range({n}) %}}{{% set ns.x = {value} %}}{{% endfor %}}"
                )
            },
        ));
        deep
    }

    /// Promise 21: nothing overflows the stack, neither where it is refused nor just below, on a thread as small as any.
    #[test]
    fn a_template_can_not_be_too_deep() {
        let all = || {
            for depth in [5, 20, 30, 40, 48, 60, 90, 100, 190, 390, 1000, 10_000] {
                for template in deep(depth) {
                    let rendered = Template::jinja(&template, &Functions::default())
                        .and_then(|template| template.render(&BTreeMap::new()));
                    let error = rendered.err().unwrap_or_default();
                    let shown: String = template.chars().take(60).collect();
                    let bounded =
                        ["too deeply", "recursion", "on the way", "break it"].iter().any(|word| error.contains(word));
                    assert_eq!(bounded, depth >= 1000 || bounded && depth > 20, "{depth}: {shown}: {error}");
                }
            }
            assert!(
                Template::jinja(&"x".repeat(2 << 20), &Functions::default()).unwrap_err().contains("at most 1048576")
            );
        };
        std::thread::Builder::new().stack_size(2 << 20).spawn(all).unwrap().join().unwrap();
    }

    /// Promise 21: a template that calls itself for ever is refused, however little stack its caller has left.
    #[test]
    fn a_template_that_calls_itself_needs_no_stack_of_its_caller() {
        let all = || {
            for template in [
                "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
                "{% macro a(x) %}{% if x %}{{ b(x) }}{% endif %}{% endmacro %}{% macro b(x) %}{{ a([x]) }}{% endmacro %}{{ a(1) }}",
                "{% macro a() %}{{ caller() }}{% call a() %}x{% endcall %}{% endmacro %}{% call a() %}y{% endcall %}",
                "{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}",
            ] {
                let template = Template::jinja(template, &Functions::default()).unwrap();
                let error = template.render(&BTreeMap::new()).unwrap_err();
                assert!(["recursion", "on the way", "fuel"].iter().any(|word| error.contains(word)), "{error}");
            }
        };
        std::thread::Builder::new().stack_size(192 << 10).spawn(all).unwrap().join().unwrap();
    }

    /// The control: without the bound the same templates end the process.
    #[cfg(unix)]
    #[test]
    fn without_the_bound_a_deep_template_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;
        let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", "template::tests::unbounded", "--ignored"]);
        assert!(inner.output().unwrap().status.signal().is_some());
    }

    #[test]
    #[ignore = "the inner half of the test above; it ends its process"]
    fn unbounded() {
        for template in deep(10_000) {
            drop(Environment::new().add_template_owned(NAME, template));
        }
    }

    /// What is wrong behind column 65,535 has no place that the lexer could name.
    #[test]
    fn a_line_can_not_be_too_long() {
        let long = "x".repeat(70_000);
        for (template, is_allowed) in [
            (long.clone(), true),
            (format!("{{{{ a }}}}\n{long}\n"), false),
            (format!("{long}{{{{ ' "), false),
            (format!("{{{{\n{long} ' "), false),
            (format!("{{{{ a }}}}{}", "x\n".repeat(70_000)), true),
        ] {
            assert_eq!(Template::jinja(&template, &Functions::default()).is_ok(), is_allowed, "{:?}", &template[..8]);
        }
    }

    #[test]
    fn malformed_templates_are_refused_when_checked() {
        for bad in ["{{#a.b", "{{#a#}}", "{{#.#}}", "{{#a.{{b}}#}}", "{% if %}", "{{ x", "{% nothing %}"] {
            assert!(Template::with_references(bad, &Functions::default()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_template_that_does_not_end_runs_out() {
        let forever = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        let error = Template::jinja(forever, &Functions::default()).unwrap().render(&BTreeMap::new()).unwrap_err();
        assert!(error.contains("fuel"), "{error}");
        let flood = "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}";
        assert!(Template::jinja(flood, &Functions::default()).unwrap().render(&BTreeMap::new()).is_err());
    }
}
