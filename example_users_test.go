package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Create sends the invitation once. Its error codes say why there was none.
func ExampleUserService_Create() {
	client, err := brelliumtest.New().Client() // brellium.NewClient() for the real API
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	params := brellium.UserCreateParams{Email: "casey@example.test", Name: "Casey"}
	for range 2 {
		user, err := client.Users.Create(ctx, params)
		var apiErr *brellium.APIError
		switch {
		case err == nil:
			fmt.Println("invited", user.Name)
		case errors.As(err, &apiErr) && apiErr.Code == brellium.CodeInvitationPending:
			fmt.Println("invited before")
		case brellium.OutcomeUnknown(err):
			log.Fatal("may have been invited; Ensure resolves that")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// invited Casey
	// invited before
}

// Ensure may be called any number of times. The user is invited once, even if a
// response is lost.
func ExampleUserService_Ensure() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		user, err := client.Users.Ensure(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.Email, emulator.Invitations(user.Email))
	}
	// Output:
	// casey@example.test 1
	// casey@example.test 1
	// casey@example.test 1
}

func ExampleWithEnsureOutcome() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		var outcome brellium.EnsureOutcome
		params := brellium.UserCreateParams{Email: "casey@example.test"}
		if _, err := client.Users.Ensure(context.Background(), params, brellium.WithEnsureOutcome(&outcome)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(outcome)
	}
	// Output:
	// created
	// found
}

// A user who does not exist is an error, unless a retry finds that an earlier
// attempt has removed them.
func ExampleUserService_Delete() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	user, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	if err != nil {
		log.Fatal(err)
	}

	fmt.Println(client.Users.Delete(ctx, user.UserID))
	fmt.Println(errors.Is(client.Users.Delete(ctx, user.UserID), brellium.ErrNotFound))
	// Output:
	// <nil>
	// true
}

func ExampleUserService_All() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for _, email := range []string{"casey@example.test", "robin@example.test"} {
		if _, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: email}); err != nil {
			log.Fatal(err)
		}
	}

	for user, err := range client.Users.All(ctx, brellium.UserListParams{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(user.Email)
	}
	// Output:
	// casey@example.test
	// robin@example.test
}

func ExampleEmailRecipientService_Create() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}

	params := brellium.EmailRecipientCreateParams{Email: "casey@example.test", Name: "Casey"}
	for range 2 {
		recipient, err := client.EmailRecipients.Create(context.Background(), params)
		var apiErr *brellium.APIError
		switch {
		case err == nil:
			fmt.Println("created", recipient.Name)
		case errors.As(err, &apiErr) && apiErr.Code == brellium.CodeEmailRecipientExists:
			fmt.Println("exists")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// created Casey
	// exists
}

// FindByEmail ignores the case of ASCII letters.
func ExampleEmailRecipientService_FindByEmail() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	_, err = client.EmailRecipients.FindByEmail(ctx, "casey@example.test")
	fmt.Println(errors.Is(err, brellium.ErrNotFound))

	if _, err := client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "casey@example.test"}); err != nil {
		log.Fatal(err)
	}
	found, err := client.EmailRecipients.FindByEmail(ctx, "Casey@Example.test")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(found.Email)
	// Output:
	// true
	// casey@example.test
}

// Ensure may be called any number of times. It creates one recipient.
func ExampleEmailRecipientService_Ensure() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	for range 2 {
		recipient, err := client.EmailRecipients.Ensure(context.Background(), brellium.EmailRecipientCreateParams{Email: "casey@example.test"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(recipient.Email, len(emulator.EmailRecipients()))
	}
	// Output:
	// casey@example.test 1
	// casey@example.test 1
}
