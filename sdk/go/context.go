package sealog

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

type contextKey struct{}

// fields is what a request knows and every event of it should have.
type fields struct {
	event       Event
	traceparent string
}

func fieldsOf(ctx context.Context) *fields {
	known, _ := ctx.Value(contextKey{}).(*fields)
	return known
}

// With returns a context whose fields are added to every event that is logged with it. Fields of the event
// win; members of Metadata are merged.
//
//	ctx = sealog.With(ctx, sealog.Event{ActorID: user.ID})
func With(ctx context.Context, event Event) context.Context {
	known := &fields{event: event}
	known.event.Metadata = maps.Clone(event.Metadata)
	if outer := fieldsOf(ctx); outer != nil {
		fillFrom(&known.event, &outer.event)
		known.traceparent = outer.traceparent
	}
	return context.WithValue(ctx, contextKey{}, known)
}

// WithTraceparent returns a context whose W3C traceparent Log sends as a header.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	known := fields{}
	if outer := fieldsOf(ctx); outer != nil {
		known = *outer
	}
	known.traceparent = traceparent
	return context.WithValue(ctx, contextKey{}, &known)
}

// fill adds what the event lacks, and returns the traceparent.
func fill(ctx context.Context, event *Event) string {
	known := fieldsOf(ctx)
	if known == nil {
		return ""
	}
	fillFrom(event, &known.event)
	return known.traceparent
}

func fillFrom(event, known *Event) {
	texts, more := event.texts(), known.texts()
	for i := range texts {
		if *texts[i].value == "" {
			*texts[i].value = *more[i].value
		}
	}
	addMetadata(event, known.Metadata)
}

// addMetadata adds members that the event lacks, in a copy: the map is the application's.
func addMetadata(event *Event, more map[string]any) {
	if len(more) > 0 {
		merged := maps.Clone(more)
		maps.Copy(merged, event.Metadata)
		event.Metadata = merged
	}
}

// TrustedProxies are the proxies whose X-Forwarded-For is read.
type TrustedProxies []netip.Prefix

// ParseProxies reads addresses and CIDR ranges.
func ParseProxies(ranges ...string) (TrustedProxies, error) {
	var proxies TrustedProxies
	for _, text := range ranges {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil {
				return nil, badOption("TrustedProxies",
					fmt.Sprintf("%.100q is neither an address nor a CIDR range", text))
			}
			prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
		}
		proxies = append(proxies, prefix.Masked())
	}
	return proxies, nil
}

func (p TrustedProxies) contain(address netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// ClientAddress is the client's address by docs/spec.md, section 8.2: from the right, the first one that is
// no trusted proxy. forwarded are the values of X-Forwarded-For.
func (p TrustedProxies) ClientAddress(peer string, forwarded []string) string {
	client, err := netip.ParseAddr(peer)
	if err != nil {
		return peer
	}
	client = client.Unmap()
	entries, count := strings.Split(strings.Join(forwarded, ","), ","), 0
	for i := len(entries) - 1; i >= 0; i-- {
		entry := strings.TrimSpace(entries[i])
		if entry == "" {
			continue
		}
		count++
		if count > 32 || len(entry) > 64 || !p.contain(client) {
			break
		}
		found, err := netip.ParseAddr(withoutPort(entry))
		if err != nil {
			break
		}
		client = found.Unmap()
	}
	return client.String()
}

func withoutPort(entry string) string {
	if strings.HasPrefix(entry, "[") {
		address, _, _ := strings.Cut(entry[1:], "]")
		return address
	}
	if strings.Count(entry, ":") == 1 {
		address, _, _ := strings.Cut(entry, ":")
		return address
	}
	return entry
}

// MiddlewareOptions of Middleware. Actor and Session may be nil, or return "" if there is none.
type MiddlewareOptions struct {
	TrustedProxies TrustedProxies
	Actor          func(*http.Request) string // the id of the signed-in user
	// Session returns an id of the session. The cookie itself would let a reader of the log take the session
	// over: Pseudonymize it.
	Session func(*http.Request) string
}

// Middleware puts the client's address, the request id, the trace, the actor and the session into the context
// of each request. Events that a handler logs with r.Context() have them. Place it behind the authentication.
func Middleware(options MiddlewareOptions) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			event := Event{Metadata: map[string]any{}}
			peer, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				peer = r.RemoteAddr
			}
			forwarded := r.Header.Values("X-Forwarded-For")
			if address := options.TrustedProxies.ClientAddress(peer, forwarded); address != "" {
				event.Metadata["ip_address"] = address
			}
			if id := headerText(r, "X-Request-Id"); id != "" {
				event.Metadata["request_id"] = id
			}
			if options.Actor != nil {
				event.ActorID = options.Actor(r)
			}
			if options.Session != nil {
				event.SessionID = options.Session(r)
			}
			ctx := With(r.Context(), event)
			if traceparent := headerText(r, "Traceparent"); traceparent != "" {
				ctx = WithTraceparent(ctx, traceparent)
			}
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// headerText is a header of the client's choice: bounded, and always a valid text, so that no client can make
// the application's events invalid.
func headerText(r *http.Request, name string) string {
	value := r.Header.Get(name)
	return strings.ToValidUTF8(value[:min(len(value), 255)], "\uFFFD")
}
