package brelliumtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func Example() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, audit.Flags)
	// Output: complete [Failed Missing Signature]
}

// What your code does when a user is already invited can be tested without
// waiting for it to happen.
func ExampleEmulator_Inject() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Status(409, "USER_EXISTS"))

	_, err = client.Users.Create(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
	var apiErr *brellium.APIError
	if errors.As(err, &apiErr) {
		fmt.Println(apiErr.StatusCode, apiErr.Code)
	}
	fmt.Println("requests:", emu.Count(brelliumtest.OpUserCreate))
	// Output:
	// 409 USER_EXISTS
	// requests: 1
}

// On a port, the emulator can be used by any client and in any language.
func ExampleEmulator_Start() {
	emu := brelliumtest.New()
	if err := emu.Start(); err != nil {
		log.Fatal(err)
	}
	defer emu.Close()

	body := fmt.Sprintf(`{"grant_type":"client_credentials","client_id":%q,"client_secret":%q}`, emu.ClientID, emu.ClientSecret)
	resp, err := http.Post(emu.URL+"/v2/oauth/token", "application/json", strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(resp.StatusCode, strings.Contains(string(answer), `"expires_in":3600`))
	// Output: 200 true
}

// Every request that arrived can be looked at.
func ExampleEmulator_Requests() {
	emu := brelliumtest.New()
	client, err := emu.Client()
	if err != nil {
		log.Fatal(err)
	}
	params := brellium.AuditUpdateParams{Flags: []string{"Needs Review"}}
	if _, err := client.Audits.Update(context.Background(), brelliumtest.SampleAuditID, params); err != nil {
		log.Fatal(err)
	}
	for _, r := range emu.Requests() {
		fmt.Println(r.Operation, r.Method, r.Status, r.Spent)
	}
	// Output:
	// oauth.token POST 200 false
	// audits.update PATCH 200 true
}
