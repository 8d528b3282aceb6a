package brellium

import (
	"net/http"

	"github.com/brellium/brellium-go/internal/wire"
)

// What the tests of package brellium_test may see. They are outside the
// package since the emulator imports it.

// OperationRow is one row of the operation table.
type OperationRow struct {
	Name, Method, Path, Repeat string
	Write                      bool
}

// OperationRows is the operation table.
func OperationRows() []OperationRow {
	rows := make([]OperationRow, 0, len(operations))
	for _, op := range operations {
		rows = append(rows, OperationRow{op.name, op.method, op.path, string(op.retry), op.write})
	}
	return rows
}

// NewTransport is a transport such as clients without WithHTTPClient share.
func NewTransport() *http.Transport { return wire.NewTransport() }

// MaxBody is the longest 2xx body that is read.
const MaxBody = wire.MaxBody
