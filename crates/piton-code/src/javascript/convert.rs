//! Values in and out of JavaScript. What goes out obeys the rules of `JSON.stringify`: fields that are
//! undefined or functions are left out, `toJSON` is called; but a number that is none is an error instead
//! of a null.

use std::collections::BTreeMap;

use piton_types::Value;
use rquickjs::{Array, Coerced, Ctx, FromJs, Function, Object, Result, Type, Value as JsValue};

use crate::CodeError;

/// As deep as values may be anywhere in Piton.
const MAX_DEPTH: usize = 128;

/// The integers that a float has exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Integers beyond 2^53 become the nearest float, as in any JavaScript; bytes become their numbers.
pub(super) fn to_js<'js>(ctx: &Ctx<'js>, value: &Value) -> Result<JsValue<'js>> {
    let ctx = ctx.clone();
    Ok(match value {
        Value::Null => JsValue::new_null(ctx),
        Value::Bool(b) => JsValue::new_bool(ctx, *b),
        Value::Int(n) => match i32::try_from(*n) {
            Ok(small) => JsValue::new_int(ctx, small),
            Err(_) => JsValue::new_float(ctx, *n as f64),
        },
        Value::UInt(n) => JsValue::new_float(ctx, *n as f64),
        Value::Float(x) => JsValue::new_float(ctx, *x),
        Value::String(text) => rquickjs::String::from_str(ctx, text)?.into_value(),
        Value::Bytes(bytes) => {
            let array = Array::new(ctx.clone())?;
            for (place, byte) in bytes.iter().enumerate() {
                array.set(place, *byte)?;
            }
            array.into_value()
        }
        Value::List(items) => {
            let array = Array::new(ctx.clone())?;
            for (place, item) in items.iter().enumerate() {
                array.set(place, to_js(&ctx, item)?)?;
            }
            array.into_value()
        }
        Value::Map(fields) => {
            let object = Object::new(ctx.clone())?;
            for (key, item) in fields {
                object.set(key.as_str(), to_js(&ctx, item)?)?;
            }
            object.into_value()
        }
    })
}

/// The outer error is the engine's, the inner one ours. Undefined is null.
pub(super) fn from_js<'js>(
    ctx: &Ctx<'js>,
    value: JsValue<'js>,
    limit: u64,
) -> Result<std::result::Result<Value, CodeError>> {
    let mut reader = Reader { ctx, left: limit, limit };
    match reader.read(value, 0) {
        Ok(value) => Ok(Ok(value.unwrap_or_default())),
        Err(Trouble::Ours(error)) => Ok(Err(error)),
        Err(Trouble::Engine(error)) => Err(error),
    }
}

enum Trouble {
    Ours(CodeError),
    Engine(rquickjs::Error),
}

impl From<rquickjs::Error> for Trouble {
    fn from(error: rquickjs::Error) -> Self {
        Self::Engine(error)
    }
}

fn unusable(what: &str) -> Trouble {
    Trouble::Ours(CodeError::Result(what.to_owned()))
}

struct Reader<'a, 'js> {
    ctx: &'a Ctx<'js>,
    left: u64,
    limit: u64,
}

impl<'js> Reader<'_, 'js> {
    /// `None` for what JSON leaves out.
    fn read(&mut self, value: JsValue<'js>, depth: usize) -> std::result::Result<Option<Value>, Trouble> {
        self.spend(8)?;
        Ok(Some(match value.type_of() {
            Type::Undefined | Type::Uninitialized | Type::Symbol => return Ok(None),
            Type::Null => Value::Null,
            Type::Bool => Value::Bool(value.as_bool().unwrap_or_default()),
            Type::Int => Value::Int(value.as_int().unwrap_or_default().into()),
            Type::Float => float(value.as_float().unwrap_or_default())?,
            Type::BigInt => {
                // By its digits: the engine's own conversion drops what is too high.
                let Coerced(digits) = Coerced::<String>::from_js(self.ctx, value)?;
                Value::Int(digits.parse().map_err(|_| unusable("a BigInt has more than 64 bits"))?)
            }
            Type::String => {
                let text = String::from_js(self.ctx, value)?;
                self.spend(text.len())?;
                Value::String(text)
            }
            Type::Function | Type::Constructor => return Ok(None),
            _ if depth >= MAX_DEPTH => return Err(unusable("it is nested too deeply, or contains itself")),
            Type::Array => {
                let Some(array) = value.into_array() else { return Ok(None) };
                let mut items = Vec::new();
                for item in array.iter::<JsValue<'js>>() {
                    items.push(self.read(item?, depth + 1)?.unwrap_or_default());
                }
                Value::List(items)
            }
            _ => {
                let Some(object) = value.into_object() else { return Ok(None) };
                return self.object(&object, depth);
            }
        }))
    }

    fn object(&mut self, object: &Object<'js>, depth: usize) -> std::result::Result<Option<Value>, Trouble> {
        let to_json: JsValue<'js> = object.get("toJSON")?;
        if let Some(to_json) = to_json.as_function() {
            let value: JsValue<'js> = Function::call(to_json, (rquickjs::function::This(object.clone()),))?;
            return self.read(value, depth + 1);
        }
        let mut fields = BTreeMap::new();
        for entry in object.props::<String, JsValue<'js>>() {
            let (key, item) = entry?;
            self.spend(key.len())?;
            if let Some(item) = self.read(item, depth + 1)? {
                fields.insert(key, item);
            }
        }
        Ok(Some(Value::Map(fields)))
    }

    fn spend(&mut self, bytes: usize) -> std::result::Result<(), Trouble> {
        let left = self.left.checked_sub(bytes as u64);
        self.left = left.ok_or(Trouble::Ours(CodeError::TooMuchOutput { limit: self.limit }))?;
        Ok(())
    }
}

/// A float without a fraction is an integer, as it is in JSON.
fn float(x: f64) -> std::result::Result<Value, Trouble> {
    if !x.is_finite() {
        return Err(unusable(&format!("{x} isn't a number that JSON has")));
    }
    if x.fract() == 0.0 && x.abs() <= EXACT && !(x == 0.0 && x.is_sign_negative()) {
        return Ok(Value::Int(x as i64));
    }
    Ok(Value::Float(x))
}
