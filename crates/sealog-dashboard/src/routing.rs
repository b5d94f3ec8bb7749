//! What the table of the pages and that of the console have in common: what a row is, and how rows become a
//! router.

use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter};

/// A row of a table, as far as a router needs to know it.
pub(crate) trait Row: Sync + 'static {
    fn path(&self) -> &'static str;
    fn method(&self) -> &Method;
}

/// The type of the rows of a table: with what its gate asks for, and who answers.
macro_rules! row_type {
    ($row:ident, $needs:ty, $handler:ty) => {
        pub struct $row {
            pub path: &'static str,
            pub method: axum::http::Method,
            pub needs: $needs,
            handler: $handler,
        }

        impl std::fmt::Debug for $row {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{} {} ({:?})", self.method, self.path, self.needs)
            }
        }

        impl $crate::routing::Row for $row {
            fn path(&self) -> &'static str {
                self.path
            }

            fn method(&self) -> &axum::http::Method {
                &self.method
            }
        }
    };
}

/// Rows of a table, one in each line: method, path, what it needs, and who answers.
macro_rules! rows {
    ($row:ident: $($method:ident $path:literal $needs:expr => $module:ident::$handler:ident;)*) => {
        &[$($row {
            path: $path,
            method: axum::http::Method::$method,
            needs: $needs,
            handler: |app, asked| Box::pin($module::$handler(app, asked)),
        }),*]
    };
}

pub(crate) use {row_type, rows};

/// `answer` is asked with the row of a request; for what is below `elsewhere` and in no row, without one.
pub(crate) fn router<R: Row, F: Future<Output = Response> + Send + 'static>(
    rows: &'static [R],
    elsewhere: &str,
    answer: impl Fn(Option<&'static R>, RawPathParams, Request) -> F + Clone + Send + Sync + 'static,
) -> Router {
    let mut router = Router::new();
    let mut paths: Vec<&'static str> = rows.iter().map(Row::path).collect();
    paths.dedup();
    for path in paths {
        let mut methods = MethodRouter::new();
        for row in rows.iter().filter(|row| row.path() == path) {
            let filter = MethodFilter::try_from(row.method().clone()).expect("a method that HTTP itself has");
            let answer = answer.clone();
            let asked =
                move |parameters: RawPathParams, request: Request| answer(Some(row), parameters, request);
            methods = methods.on(filter, asked);
        }
        router = router.route(path, methods);
    }
    let asked = move |parameters: RawPathParams, request: Request| answer(None, parameters, request);
    router.route(elsewhere, axum::routing::get(asked))
}
