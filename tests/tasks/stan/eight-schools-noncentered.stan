data {
  int J;
  vector[J] y;
  vector[J] sigma;
}
parameters {
  vector[J] theta_trans;
  real mu;
  real<lower=0> tau;
}
model {
  mu ~ normal(0, 5);
  tau ~ cauchy(0, 5);
  theta_trans ~ std_normal();
  y ~ normal(mu + tau * theta_trans, sigma);
}
