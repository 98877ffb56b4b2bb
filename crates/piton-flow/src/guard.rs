//! Keeps templates from eating memory. Fuel counts steps, but a step can double a text: thirty of
//! `{% set x = x ~ x %}` make a gigabyte of a letter. So whatever makes a value inside a template that keeps
//! values (assigns, loops, has macros) is made to pay for its size, and the whole has a budget.
//!
//! A template without such statements isn't touched: what it can make is no longer than itself and its
//! values together.

use std::cell::Cell;
use std::cmp::Reverse;

use minijinja::machinery::ast::{BinOpKind, Call, CallArg, Expr, Stmt};
use minijinja::machinery::{Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters};

/// The names of the filters that pay.
pub(crate) const PAY: &str = "__pay";
pub(crate) const PAY_USE: &str = "__pay_use";

/// How many bytes one rendering may make on the way.
const BUDGET: usize = 64 << 20;

thread_local! {
    /// What the rendering on this thread may still make. A rendering never leaves its thread.
    static LEFT: Cell<usize> = const { Cell::new(BUDGET) };
}

/// A new rendering begins.
pub(crate) fn begin() {
    LEFT.set(BUDGET);
}

/// The filter that pays for a value that was made, and passes it on. A list is made anew: one that is put
/// together of others that share their parts would be gone through again and again.
pub(crate) fn pay(value: Value) -> Result<Value, Error> {
    let mut left = LEFT.get();
    let value = if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        let mut items = Vec::new();
        for item in value.try_iter()? {
            if !take(&item, &mut left, 1) {
                return Err(too_much());
            }
            items.push(item);
        }
        Value::from(items)
    } else if take(&value, &mut left, 0) {
        value
    } else {
        return Err(too_much());
    };
    LEFT.set(left);
    Ok(value)
}

/// The filter that pays for a value that is written, or gone through: then also for what each round writes.
pub(crate) fn pay_use(value: Value, round: Option<usize>) -> Result<Value, Error> {
    let mut left = LEFT.get();
    let rounds = round.map_or(0, |bytes| value.len().unwrap_or(1).saturating_mul(bytes));
    match left.checked_sub(rounds) {
        Some(rest) => left = rest,
        None => return Err(too_much()),
    }
    if !take(&value, &mut left, 0) {
        return Err(too_much());
    }
    LEFT.set(left);
    Ok(value)
}

fn too_much() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("it makes more than {BUDGET} bytes on the way"))
}

/// Filters whose result can be longer than their values together, made to look before they work.
pub(crate) fn bound_filters(environment: &mut Environment<'_>) {
    environment.add_filter("__replace", filters::replace);
    environment.add_filter("__join", filters::join);
    environment.add_filter("__indent", filters::indent);
    environment.add_filter("__format", filters::format);
    environment.add_filter("replace", |state: &mut State<'_, '_>, args: Rest<Value>| {
        let text = |place: usize| args.get(place).map(ToString::to_string).unwrap_or_default();
        let (value, from, to) = (text(0), text(1), text(2));
        let found = if from.is_empty() { value.chars().count() + 1 } else { value.matches(&*from).count() };
        bounded(state, "__replace", &args, found.saturating_mul(to.len()))
    });
    environment.add_filter("join", |state: &mut State<'_, '_>, args: Rest<Value>| {
        let between = args.get(1).and_then(Value::as_str).map_or(0, str::len);
        let items = args.first().and_then(Value::len).unwrap_or(0);
        bounded(state, "__join", &args, items.saturating_mul(between))
    });
    environment.add_filter("indent", |state: &mut State<'_, '_>, args: Rest<Value>| {
        let numbers = args.iter().skip(1).filter_map(Value::as_usize).max().unwrap_or(4);
        // By name it stands in a map at the end.
        let named = args.last().and_then(|last| last.get_attr("width").ok()).and_then(|width| width.as_usize());
        let lines = args.first().and_then(Value::as_str).map_or(0, |text| text.lines().count() + 1);
        bounded(state, "__indent", &args, lines.saturating_mul(numbers.max(named.unwrap_or(0))))
    });
    environment.add_filter("format", |state: &mut State<'_, '_>, args: Rest<Value>| {
        let source = args.first().and_then(Value::as_str).unwrap_or_default();
        let widths = source.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse::<usize>().ok());
        let long = source.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 9);
        // A width may be an argument too.
        let given: usize = args.iter().skip(1).filter_map(Value::as_usize).fold(0, usize::saturating_add);
        let starred = if source.contains('*') { given } else { 0 };
        let size = widths.fold(starred, usize::saturating_add);
        bounded(state, "__format", &args, if long { usize::MAX } else { size })
    });
}

fn bounded(state: &mut State<'_, '_>, filter: &str, args: &[Value], size: usize) -> Result<Value, Error> {
    if size > LEFT.get() { Err(too_much()) } else { state.apply_filter(filter, args) }
}

/// Takes the size of a value, with all that is inside, from what is left.
fn take(value: &Value, left: &mut usize, depth: usize) -> bool {
    const PLACE: usize = 32;
    let own = match value.kind() {
        ValueKind::String | ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
        _ => 0,
    };
    let Some(rest) = left.checked_sub(own + PLACE) else { return false };
    *left = rest;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::Map if depth > 100 => false,
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().is_ok_and(|mut items| items.all(|item| take(&item, left, depth + 1)))
        }
        ValueKind::Map => value.try_iter().is_ok_and(|mut keys| {
            keys.all(|key| {
                let entry = value.get_item(&key).unwrap_or_default();
                take(&key, left, depth + 1) && take(&entry, left, depth + 1)
            })
        }),
        _ => true,
    }
}

/// How long a template may be, in bytes.
const MAX_SOURCE: usize = 1 << 20;

/// How long a line of one that isn't plain text may be.
const MAX_LINE: usize = u16::MAX as usize;

/// How deep it may be: so many operators behind one another, half as many `elif`, an eighth as many brackets in brackets.
/// Parser, compiler and destructor call themselves once for each of them, with frames of about these sizes.
const MAX_DEPTH: usize = 400;
const ALTERNATIVE: usize = 2;
const BLOCK: usize = 4;
const BRACKET: usize = 8;

/// Refuses a template that is too long or too deep, by its tokens: before anything looks at it that calls itself.
fn bound(source: &str) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::new(ErrorKind::SyntaxError, what));
    if source.len() > MAX_SOURCE {
        return refuse(format!("the template has {} bytes; at most {MAX_SOURCE} are allowed", source.len()));
    }
    // The lexer counts columns in 16 bits, and behind the last of them it can't say where something is wrong.
    if ["{{", "{%", "{#"].iter().any(|mark| source.contains(mark)) && source.lines().any(|line| line.len() >= MAX_LINE)
    {
        return refuse(format!("a line of the template has more than {MAX_LINE} bytes; break it"));
    }
    // Of the blocks and brackets that are open: how deep it was before each.
    let (mut blocks, mut brackets) = (Vec::new(), Vec::new());
    // How deep the blocks are, and the expression in them.
    let (mut outside, mut depth) = (0, 0);
    let (mut begins, mut opens, mut sets) = (false, false, false);
    for token in tokenize(source, false, SyntaxConfig::default()) {
        // What is wrong with it the parser says better.
        let Ok((token, _)) = token else { return Ok(()) };
        match token {
            Token::BlockStart | Token::VariableStart => {
                brackets.clear();
                depth = outside;
                begins = matches!(token, Token::BlockStart);
                continue;
            }
            Token::Ident("elif") if begins => outside += ALTERNATIVE,
            Token::Ident(word) if begins && word.starts_with("end") => outside = blocks.pop().unwrap_or(0),
            Token::Ident(word) if begins => {
                opens = !matches!(word, "else" | "do" | "include" | "import" | "from" | "extends");
                sets = word == "set";
            }
            // `{% set x = … %}` has no end, `{% set x %}` has.
            Token::Assign if sets && brackets.is_empty() => (opens, depth) = (false, outside),
            Token::BlockEnd if opens => {
                blocks.push(outside);
                outside += BLOCK;
                opens = false;
            }
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                brackets.push(depth);
                depth += BRACKET;
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                depth = brackets.pop().unwrap_or(outside) + 1;
            }
            Token::Comma | Token::Colon | Token::Assign => {
                depth = brackets.last().map_or(outside, |before| before + BRACKET);
            }
            Token::Ident("not" | "and" | "or" | "in" | "is" | "if" | "else") => depth += 1,
            Token::Ident(_) | Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Int128(_) | Token::Float(_) => {
            }
            _ => depth += 1,
        }
        begins = false;
        if depth.max(outside) > MAX_DEPTH {
            return refuse(
                "the template is nested too deeply, or has too many operators or alternatives in a row".to_owned(),
            );
        }
    }
    Ok(())
}

/// The template with everything in it that makes values made to pay.
pub(crate) fn guard(source: &str) -> Result<String, Error> {
    bound(source)?;
    let template = parse(source, "template", SyntaxConfig::default())?;
    let mut walk = Walk::default();
    walk.statement(&template);
    if !walk.keeps {
        return Ok(source.to_owned());
    }
    // Where several begin together the outermost comes first, where several end together the innermost.
    let mut wraps = walk.wraps;
    wraps.sort_by_key(|(start, end)| (*start, Reverse(*end)));
    wraps.dedup();
    let mut cuts: Vec<(usize, (u8, usize), String)> = Vec::new();
    for (order, (start, end)) in wraps.iter().enumerate() {
        cuts.push((*start, (2, order), "((".to_owned()));
        cuts.push((*end, (1, usize::MAX - order), format!(")|{PAY})")));
    }
    for (place, text) in walk.appends {
        cuts.push((place, (0, 0), text));
    }
    cuts.sort();
    let mut guarded = String::with_capacity(source.len() + 16 * cuts.len());
    let mut done = 0;
    for (place, _, text) in cuts {
        guarded.push_str(source.get(done..place).unwrap_or_default());
        guarded.push_str(&text);
        done = place;
    }
    guarded.push_str(source.get(done..).unwrap_or_default());
    Ok(guarded)
}

#[derive(Default)]
struct Walk {
    /// The places of operations, which are put in brackets and made to pay.
    wraps: Vec<(usize, usize)>,
    /// The ends of other expressions, and what is put there.
    appends: Vec<(usize, String)>,
    /// A statement keeps values from one place to another.
    keeps: bool,
}

impl Walk {
    fn all(&mut self, statements: &[Stmt<'_>]) {
        statements.iter().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &Stmt<'_>) {
        match statement {
            Stmt::Template(template) => self.all(&template.children),
            // It may be captured, and what is captured is a value.
            Stmt::EmitExpr(emit) => self.value(&emit.expr, None),
            Stmt::ForLoop(found) => {
                self.keeps = true;
                self.value(&found.iter, Some(written(&found.body)));
                found.filter_expr.iter().for_each(|filter| self.expression(filter));
                self.all(&found.body);
                self.all(&found.else_body);
            }
            Stmt::IfCond(found) => {
                self.expression(&found.expr);
                self.all(&found.true_body);
                self.all(&found.false_body);
            }
            Stmt::WithBlock(found) => {
                self.keeps = true;
                found.assignments.iter().for_each(|(_, value)| self.expression(value));
                self.all(&found.body);
            }
            Stmt::Set(found) => {
                self.keeps = true;
                self.expression(&found.expr);
            }
            Stmt::SetBlock(found) => {
                self.keeps = true;
                self.all(&found.body);
            }
            Stmt::AutoEscape(found) => self.all(&found.body),
            Stmt::FilterBlock(found) => {
                self.keeps = true;
                self.all(&found.body);
            }
            Stmt::Block(found) => self.all(&found.body),
            Stmt::Macro(found) => {
                self.keeps = true;
                found.defaults.iter().for_each(|value| self.expression(value));
                self.all(&found.body);
            }
            Stmt::CallBlock(found) => {
                self.keeps = true;
                self.call(&found.call);
                self.all(&found.macro_decl.body);
            }
            Stmt::Do(found) => self.call(&found.call),
            // Text; and other templates, of which there are none.
            _ => {}
        }
    }

    fn call(&mut self, call: &Call<'_>) {
        self.inner(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) {
        for argument in arguments {
            match argument {
                CallArg::Pos(value)
                | CallArg::Kwarg(_, value)
                | CallArg::PosSplat(value)
                | CallArg::KwargSplat(value) => self.expression(value),
            }
        }
    }

    /// Makes an expression pay where it ends.
    fn append(&mut self, expression: &Expr<'_>, text: String) {
        self.appends.push((expression.span().end_offset as usize, text));
    }

    /// An expression whose value is written, or gone through in rounds.
    fn value(&mut self, expression: &Expr<'_>, round: Option<usize>) {
        match expression {
            Expr::IfExpr(found) => {
                self.expression(&found.test_expr);
                self.value(&found.true_expr, round);
                found.false_expr.iter().for_each(|part| self.value(part, round));
            }
            // Numbers and truth values; what is inside is looked at below.
            Expr::UnaryOp(_) | Expr::Compare(_) | Expr::Test(_) => self.expression(expression),
            Expr::BinOp(found) => {
                self.expression(expression);
                // Only the end of the right side could be reached; both sides pay, which is more.
                if round.is_some() || matches!(found.op, BinOpKind::ScAnd | BinOpKind::ScOr) {
                    self.value(&found.left, round);
                    self.value(&found.right, round);
                }
            }
            Expr::Filter(_) | Expr::Call(_) if round.is_none() => self.expression(expression),
            _ => {
                self.expression(expression);
                let rounds = round.map(|bytes| format!("({bytes})")).unwrap_or_default();
                self.append(expression, format!("|{PAY_USE}{rounds}"));
            }
        }
    }

    /// What stands before a dot, brackets or arguments: nothing can be put behind it.
    fn inner(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Call(found) => self.call(found),
            other => self.expression(other),
        }
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match expression {
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(found) => {
                self.inner(&found.expr);
                [&found.start, &found.stop, &found.step].into_iter().flatten().for_each(|part| self.expression(part));
            }
            Expr::UnaryOp(found) => self.expression(&found.expr),
            Expr::BinOp(found) => {
                if matches!(found.op, BinOpKind::Concat | BinOpKind::Add | BinOpKind::Mul) {
                    let span = expression.span();
                    self.wraps.push((span.start_offset as usize, span.end_offset as usize));
                }
                self.expression(&found.left);
                self.expression(&found.right);
            }
            Expr::Compare(found) => {
                self.expression(&found.expr);
                found.ops.iter().for_each(|part| self.expression(&part.expr));
            }
            Expr::IfExpr(found) => {
                self.expression(&found.test_expr);
                self.expression(&found.true_expr);
                found.false_expr.iter().for_each(|part| self.expression(part));
            }
            Expr::Filter(found) => {
                if let Some(inner) = &found.expr {
                    self.expression(inner);
                    self.append(expression, format!("|{PAY}"));
                }
                self.arguments(&found.args);
            }
            Expr::Test(found) => {
                self.expression(&found.expr);
                self.arguments(&found.args);
            }
            Expr::GetAttr(found) => self.inner(&found.expr),
            Expr::GetItem(found) => {
                self.inner(&found.expr);
                self.expression(&found.subscript_expr);
            }
            Expr::Call(found) => {
                self.call(found);
                self.append(expression, format!("|{PAY}"));
            }
            Expr::List(found) => self.items(&found.items),
            Expr::Tuple(found) => self.items(&found.items),
            Expr::Map(found) => self.items(&found.values),
        }
    }

    /// What is put into a list or a map pays, and so isn't nested without end.
    fn items(&mut self, items: &[Expr<'_>]) {
        items.iter().filter(|item| !matches!(item, Expr::Const(_))).for_each(|item| self.value(item, None));
    }
}

/// The bytes of text that a round of a loop may write by itself. Loops inside it pay for their own.
fn written(body: &[Stmt<'_>]) -> usize {
    let one = |statement: &Stmt<'_>| match statement {
        Stmt::EmitRaw(text) => text.raw.len(),
        Stmt::EmitExpr(emit) => match &emit.expr {
            Expr::Const(found) => found.value.as_str().map_or(0, str::len),
            _ => 0,
        },
        Stmt::IfCond(found) => written(&found.true_body).max(written(&found.false_body)),
        Stmt::WithBlock(found) => written(&found.body),
        Stmt::SetBlock(found) => written(&found.body),
        Stmt::AutoEscape(found) => written(&found.body),
        Stmt::FilterBlock(found) => written(&found.body),
        Stmt::ForLoop(found) => written(&found.else_body),
        Stmt::CallBlock(found) => written(&found.macro_decl.body),
        _ => 0,
    };
    body.iter().map(one).sum()
}
