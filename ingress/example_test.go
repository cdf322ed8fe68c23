package ingress

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/turnpool/turnpool/session"
)

// A server is an http.Handler, to be mounted wherever it is wanted. It is shut
// down before the http.Server around it, so that streams are told.
func ExampleServer() {
	broker := newBroker() // in a deployment: the broker's client
	server, err := New(
		Config{DefaultAgent: "echo", CORSOrigins: []string{"https://app.example.com"}},
		Deps{Queue: broker, Log: broker, Control: broker, Registry: broker, Dead: broker, Keys: broker, Store: session.NewMemory()},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Shutdown(context.Background())

	ask := func(body string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/v1/turns", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		return w
	}

	w := ask(`{"input":{"message":"How long is my stay?"}}`, "Prefer", "respond-async")
	fmt.Println(w.Code, http.StatusText(w.Code), w.Header().Get("Preference-Applied"))

	w = ask(`{"message":"How long is my stay?"}`)
	fmt.Println(w.Code, w.Body)

	// Output:
	// 202 Accepted respond-async
	// 400 {"type":"urn:turnpool:unknown_field","title":"A field is unknown","status":400,"detail":"message: did you mean input.message?","instance":"/v1/turns","code":"unknown_field","errors":[{"path":"/message","message":"did you mean input.message?"}]}
}
