//! What a row of a table of routes is, and how rows become a router.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, get};

use crate::gate::{self, Gate, Handler, Needs};
use crate::headers;

/// A row of a table: with what its gate asks for, and who answers.
pub struct Route<F: Gate> {
    pub path: &'static str,
    pub method: Method,
    pub needs: Needs,
    pub(crate) handler: Handler<F>,
}

impl<F: Gate> fmt::Debug for Route<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.needs)
    }
}

/// Rows of a table, one in each line: method, path, what it needs, and who answers.
macro_rules! rows {
    ($($method:ident $path:literal $needs:expr => $module:ident::$handler:ident;)*) => {
        &[$($crate::routing::Route {
            path: $path,
            method: axum::http::Method::$method,
            needs: $needs,
            handler: |front, asked| Box::pin($module::$handler(front, asked)),
        }),*]
    };
}

pub(crate) use rows;

/// What is beneath the site and not in the table gets a page that says so.
pub(crate) fn router<F: Gate>(front: &Arc<F>, rows: impl Iterator<Item = &'static Route<F>>) -> Router {
    let rows: Vec<_> = rows.collect();
    let answer = |row: Option<&'static Route<F>>| {
        let front = Arc::clone(front);
        move |parameters: RawPathParams, request: Request| {
            let front = Arc::clone(&front);
            async move {
                let (path, needs) = row.map_or(("", Needs::Nothing), |row| (row.path, row.needs));
                let handler = row.map(|row| row.handler);
                headers::add(path, gate::pass(&front, needs, handler, &parameters, request).await)
            }
        }
    };
    let mut router = Router::new();
    let mut paths: Vec<&'static str> = rows.iter().map(|row| row.path).collect();
    paths.dedup();
    for path in paths {
        let mut methods = MethodRouter::new();
        for row in rows.iter().filter(|row| row.path == path) {
            let filter = MethodFilter::try_from(row.method.clone()).expect("a method that HTTP itself has");
            methods = methods.on(filter, answer(Some(row)));
        }
        router = router.route(path, methods);
    }
    router.route(&format!("{}/{{*rest}}", F::BASE), get(answer(None)))
}
