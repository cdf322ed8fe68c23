package ingress

import (
	_ "embed"
	"net/http"
)

//go:embed openapi.json
var openAPIDocument []byte

// openAPI serves the description of all routes.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	writeRaw(w, http.StatusOK, openAPIDocument)
	return nil
}
